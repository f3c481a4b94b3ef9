#!/usr/bin/env bash
# Installs linerate's static binary in RUNNER_TEMP and puts it into the PATH of later steps.
#
# LINERATE_VERSION: "latest", or a version as 0.1.0. LINERATE_RELEASES: where releases are.
set -euo pipefail

releases=${LINERATE_RELEASES:-https://github.com/linerate/linerate/releases}
case ${LINERATE_VERSION:-latest} in
latest) from=$releases/latest/download ;;
*[!0-9A-Za-z.+-]*)
    echo "::error::version: \"$LINERATE_VERSION\" is no version. Write latest, or one such as 0.1.0." >&2
    exit 2
    ;;
*) from=$releases/download/v${LINERATE_VERSION#v} ;;
esac
fetch() { curl --fail --silent --show-error --location --retry 3 --max-time 300 --output "$2" "$1"; }

folder=$RUNNER_TEMP/linerate
mkdir -p "$folder"
cd "$folder"
fetch "$from/SHA256SUMS" SHA256SUMS
line=$(grep -E "^[0-9a-f]{64} [ *]linerate-[0-9A-Za-z.+-]+-$(uname -m)-unknown-linux-musl\.tar\.gz$" SHA256SUMS | head -n 1) || {
    echo "::error::the release has no binary for $(uname -sm); it has those for Linux on x86_64 and aarch64" >&2
    exit 2
}
archive=${line:66}
fetch "$from/$archive" "$archive"
echo "$line" | sha256sum --check --quiet --strict -
tar --extract --gzip --file "$archive" --strip-components 1
./linerate --version
echo "$folder" >>"$GITHUB_PATH"
