//! Every crate has examples, and tests run each of them. Cargo only compiles an example unless its
//! manifest says `test = true`: tests in others never ran.

use super::finding::{File, TidyFinding};

/// Crates that are commands, or a library that nothing links: their examples are command lines, in the
/// book or docs/.
const COMMANDS: [&str; 3] = ["linerate-cli", "linerate-commands", "linerate-bypass"];

/// Holds the examples against manifests and tests.
pub(crate) fn check(files: &[File], found: &mut Vec<TidyFinding>) {
    let crates = files.iter().filter_map(|f| f.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"));
    for package in crates.filter(|name| !COMMANDS.contains(name)) {
        let folder = format!("crates/{package}/examples/");
        let manifest = format!("crates/{package}/Cargo.toml");
        let examples = files.iter().filter_map(|f| Some((f, name_of(f.path.strip_prefix(&folder)?)?)));
        let mut none = true;
        for (example, name) in examples {
            none = false;
            if !runs(files, &manifest, example, name) {
                let what =
                    "no test runs it: give it one and `test = true` in Cargo.toml, or call it from tests/";
                found.push(TidyFinding::new(&example.path, 0, "examples", what));
            }
        }
        if none {
            found.push(TidyFinding::new(&manifest, 0, "examples", "the crate has no example"));
        }
    }
}

/// The name of the example whose main file this is, below the folder of examples.
fn name_of(path: &str) -> Option<&str> {
    let name = path.strip_suffix(".rs")?;
    let name = name.strip_suffix("/main").unwrap_or(name);
    (!name.contains('/')).then_some(name)
}

fn runs(files: &[File], manifest: &str, example: &File, name: &str) -> bool {
    let declared = format!("[[example]]\nname = \"{name}\"\ntest = true\n");
    let own = example.text.contains("test]\n")
        && files.iter().any(|f| f.path == manifest && f.text.contains(&declared));
    let included = format!("/examples/{name}");
    let called = |f: &File| f.path.contains("/tests/") && f.text.contains(&included);
    own || files.iter().any(called)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        let files: Vec<File> = files.iter().map(file).collect();
        let mut found = Vec::new();
        check(&files, &mut found);
        found.into_iter().map(|f| f.path).collect()
    }

    const MANIFEST: &str = "crates/a/Cargo.toml";
    const EXAMPLE: &str = "crates/a/examples/x.rs";
    const DECLARED: &str = "[[example]]\nname = \"x\"\ntest = true\n";

    #[test]
    fn every_crate_has_examples_that_run() {
        assert_eq!(found(&[(MANIFEST, "")]), [MANIFEST]);
        assert_eq!(found(&[("crates/linerate-cli/Cargo.toml", "")]), [""; 0]);
        let test = (EXAMPLE, "#[test]\nfn it_runs() {}\n");
        assert_eq!(found(&[(MANIFEST, ""), test]), [EXAMPLE]);
        assert_eq!(found(&[(MANIFEST, DECLARED), test]), [""; 0]);
        assert_eq!(found(&[(MANIFEST, DECLARED), (EXAMPLE, "fn main() {}\n")]), [EXAMPLE]);
        let called = ("crates/a/tests/examples.rs", "#[path = \"../examples/x.rs\"]\nmod x;\n");
        assert_eq!(found(&[(MANIFEST, ""), (EXAMPLE, "fn main() {}\n"), called]), [""; 0]);
    }

    #[test]
    fn an_example_in_a_folder_is_its_main_file() {
        assert_eq!(name_of("x.rs"), Some("x"));
        assert_eq!(name_of("grpc/main.rs"), Some("grpc"));
        assert_eq!(name_of("grpc/service.rs"), None);
        assert_eq!(name_of("x.proto"), None);
    }
}
