# `cargo xtask release --formulas FOLDER` fills in the version and the checksums of a release.
class Linerate < Formula
  desc "HTTP load, HTTP serving, and the reason why a call is slow"
  homepage "https://github.com/linerate/linerate"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on :linux

  on_intel do
    url "https://github.com/linerate/linerate/releases/download/v@VERSION@/linerate-@VERSION@-x86_64-unknown-linux-musl.tar.gz"
    sha256 "@SHA256_X86_64@"
  end
  on_arm do
    url "https://github.com/linerate/linerate/releases/download/v@VERSION@/linerate-@VERSION@-aarch64-unknown-linux-musl.tar.gz"
    sha256 "@SHA256_AARCH64@"
  end

  def install
    bin.install "linerate"
    (lib/"linerate").install "liblinerate_bypass.so"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/linerate.bash" => "linerate"
    zsh_completion.install "completions/_linerate"
    fish_completion.install "completions/linerate.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/linerate --version")
  end
end
