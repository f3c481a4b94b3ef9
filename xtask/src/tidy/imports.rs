//! Which file of a crate uses names of which other file, found by reading paths: `use`
//! declarations, and paths inside code. Tests are left out. A name that a file only passes on
//! (`pub use`) is traced to the file that defines it.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::File;
use super::lexer::lex;

/// A crate's files, and the edges between them by index.
#[derive(Debug)]
pub(crate) struct Graph {
    /// Paths below the crate's `src/`.
    pub(crate) files: Vec<String>,
    pub(crate) edges: Vec<BTreeSet<usize>>,
}

/// A `use` of one name: `use a::b as c` is the path `a::b` with the name `c`.
#[derive(Clone, Debug, PartialEq)]
struct Import {
    path: Vec<String>,
    name: String,
    exported: bool,
}

#[derive(Debug)]
struct Module {
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    imports: Vec<Import>,
    /// The code without tests and without `use` declarations.
    code: String,
}

/// Reads the crate whose sources are below `src`, such as `crates/linerate-net/src/`.
pub(crate) fn graph(files: &[File], src: &str) -> Graph {
    let mut tree = Tree { files, src, paths: Vec::new(), modules: Vec::new() };
    for root in ["lib.rs", "main.rs"] {
        tree.add(root, "", None);
    }
    let edges = (0..tree.modules.len()).map(|m| tree.edges_of(m)).collect();
    Graph { files: tree.paths, edges }
}

struct Tree<'a> {
    files: &'a [File],
    src: &'a str,
    paths: Vec<String>,
    modules: Vec<Module>,
}

impl Tree<'_> {
    /// Adds a file, and those of the modules that it declares in `folder`.
    fn add(&mut self, path: &str, folder: &str, parent: Option<usize>) -> Option<usize> {
        let full = format!("{}{path}", self.src);
        let file = self.files.iter().find(|f| f.path == full)?;
        let code = without_tests(&lex(&file.text).code);
        let (code, imports) = split_imports(&code);
        let declared = declared_modules(&code);
        let index = self.modules.len();
        self.paths.push(path.to_owned());
        let children = BTreeMap::new();
        self.modules.push(Module { parent, children, imports, code });
        for child in declared {
            let below = format!("{folder}{child}/");
            let found = self
                .add(&format!("{folder}{child}.rs"), &below, Some(index))
                .or_else(|| self.add(&format!("{below}mod.rs"), &below, Some(index)));
            if let Some(found) = found {
                self.modules[index].children.insert(child, found);
            }
        }
        Some(index)
    }

    fn root_of(&self, mut module: usize) -> usize {
        while let Some(parent) = self.modules[module].parent {
            module = parent;
        }
        module
    }

    /// The files whose names a file uses.
    fn edges_of(&self, module: usize) -> BTreeSet<usize> {
        let m = &self.modules[module];
        let mut edges = BTreeSet::new();
        let mut paths = paths_in(&m.code);
        for import in &m.imports {
            let used_here = has_word(&m.code, &import.name);
            if import.exported && !used_here {
                continue;
            }
            // A module that is imported to name what is in it: those names count instead.
            let inside = |p: &&Vec<String>| p.first() == Some(&import.name);
            let named: Vec<_> = paths.iter().filter(inside).map(|p| p[1..].to_vec()).collect();
            if named.is_empty() || !self.is_module(module, &import.path) {
                edges.extend(self.resolve(module, &import.path, 0));
            }
            for rest in named {
                let path: Vec<String> = import.path.iter().cloned().chain(rest).collect();
                edges.extend(self.resolve(module, &path, 0));
            }
        }
        paths.retain(|p| {
            let first = p[0].as_str();
            ["crate", "super", "self"].contains(&first) || m.children.contains_key(first)
        });
        edges.extend(paths.iter().filter_map(|p| self.resolve(module, p, 0)));
        edges.remove(&module);
        edges
    }

    fn is_module(&self, from: usize, path: &[String]) -> bool {
        self.walk(from, path).is_some_and(|(_, rest)| rest.is_empty())
    }

    /// The module that a path leads to, and what is left of the path.
    fn walk<'p>(&self, from: usize, path: &'p [String]) -> Option<(usize, &'p [String])> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => self.root_of(from),
            "self" => from,
            "super" => self.modules[from].parent?,
            child => *self.modules[from].children.get(child)?,
        };
        while let Some((next, later)) = rest.split_first() {
            at = match self.modules[at].children.get(next) {
                Some(child) => *child,
                None if next == "super" => self.modules[at].parent?,
                None => break,
            };
            rest = later;
        }
        Some((at, rest))
    }

    /// The file that defines what a path names.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<usize> {
        let (at, rest) = self.walk(from, path)?;
        let Some(name) = rest.first().filter(|_| depth < 8) else { return Some(at) };
        let module = &self.modules[at];
        if let Some(import) = module.imports.iter().find(|i| i.name == *name) {
            let path: Vec<String> = import.path.iter().chain(&rest[1..]).cloned().collect();
            return Some(self.resolve(at, &path, depth + 1).unwrap_or(at));
        }
        let globs = module.imports.iter().filter(|i| i.name == "*" && i.exported);
        let mut targets = globs.filter_map(|i| self.walk(at, &i.path).map(|(to, _)| to));
        Some(targets.find(|to| defines(&self.modules[*to].code, name)).unwrap_or(at))
    }
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn has_word(code: &str, word: &str) -> bool {
    words(code).any(|(_, w)| w == word)
}

/// The words of code, each with where it begins.
pub(super) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.split(|c: char| !is_part(c))
        .filter(|w| !w.is_empty())
        .map(|w| (w.as_ptr().addr() - code.as_ptr().addr(), w))
}

fn defines(code: &str, name: &str) -> bool {
    const KINDS: [&str; 9] = ["struct", "enum", "fn", "trait", "type", "const", "static", "union", "mod"];
    let mut before = "";
    words(code).any(|(_, w)| KINDS.contains(&std::mem::replace(&mut before, w)) && w == name)
}

/// Replaces each item behind `#[cfg(test)]` by spaces.
pub(super) fn without_tests(code: &str) -> String {
    const TEST: &str = "#[cfg(test)]";
    let mut rest = code;
    let mut out = String::with_capacity(code.len());
    while let Some(at) = rest.find(TEST) {
        out.push_str(&rest[..at]);
        let item = &rest[at + TEST.len()..];
        rest = &item[item_len(item)..];
    }
    out.push_str(rest);
    out
}

/// Up to the `;`, or the `}` that closes the item's block; a field or variant ends with its comma.
fn item_len(item: &str) -> usize {
    let mut depth = 0_i32;
    let mut block = false;
    for (i, c) in item.char_indices() {
        match c {
            '{' | '(' | '[' => {
                block |= c == '{' && depth == 0;
                depth += 1;
            }
            '}' | ')' | ']' => {
                depth -= 1;
                if depth < 0 {
                    return i;
                }
                if depth == 0 && c == '}' && block && !is_use(item) {
                    return i + 1;
                }
            }
            ';' if depth == 0 => return i + 1,
            ',' if depth == 0 && !item[..i].contains(['{', '=']) && !item[..i].contains("fn ") => {
                return i + 1;
            }
            _ => {}
        }
    }
    item.len()
}

fn is_use(item: &str) -> bool {
    let declared = words(item).map(|(_, w)| w).find(|w| !["pub", "crate", "super", "in"].contains(w));
    declared == Some("use")
}

/// `mod name;` of a file.
fn declared_modules(code: &str) -> Vec<String> {
    let names = words(code).zip(words(code).skip(1)).filter(|((_, kind), (at, name))| {
        *kind == "mod" && code[at + name.len()..].trim_start().starts_with(';')
    });
    names.map(|(_, (_, name))| name.to_owned()).collect()
}

/// The code without its `use` declarations, and these.
fn split_imports(code: &str) -> (String, Vec<Import>) {
    let mut imports = Vec::new();
    let mut rest = String::with_capacity(code.len());
    let mut from = 0;
    for (at, word) in words(code) {
        if word != "use" || at < from {
            continue;
        }
        let before = code[from..at].trim_end();
        let visibility = before.rfind([';', '{', '}', ']']).map_or(before, |i| &before[i + 1..]).trim();
        let end = code[at..].find(';').map_or(code.len(), |i| at + i);
        if visibility.is_empty() || visibility.starts_with("pub") {
            let exported = !visibility.is_empty();
            use_tree(code[at + 3..end].trim(), &[], exported, &mut imports);
            rest.push_str(&code[from..at]);
            from = end;
        }
    }
    rest.push_str(&code[from..]);
    (rest, imports)
}

/// `a::{b, c as d, e::{self, f}}` taken apart.
fn use_tree(tree: &str, before: &[String], exported: bool, out: &mut Vec<Import>) {
    let tree = tree.trim();
    let (head, group) = match tree.find('{') {
        Some(at) => (&tree[..at], Some(&tree[at + 1..tree.rfind('}').unwrap_or(tree.len())])),
        None => (tree, None),
    };
    let (head, alias) = match head.split_once(" as ") {
        Some((head, alias)) => (head, Some(alias.trim().to_owned())),
        None => (head, None),
    };
    let mut path = before.to_vec();
    path.extend(head.split("::").map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned));
    if let Some(group) = group {
        for part in parts(group) {
            use_tree(part, &path, exported, out);
        }
    } else if !tree.is_empty() {
        if path.len() > 1 && path.last().is_some_and(|p| p == "self") {
            path.pop();
        }
        let glob = path.pop_if(|p| p == "*");
        let name = alias.or(glob).or_else(|| path.last().cloned()).unwrap_or_default();
        out.push(Import { path, name, exported });
    }
}

/// Splits at the commas outside of inner groups.
fn parts(group: &str) -> Vec<&str> {
    let (mut depth, mut from, mut all) = (0, 0, Vec::new());
    for (i, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                all.push(&group[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    all.push(&group[from..]);
    all.retain(|p| !p.trim().is_empty());
    all
}

/// Paths of two words and more in code, such as `super::limits::QUEUE`.
fn paths_in(code: &str) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    let mut end = usize::MAX;
    for (at, word) in words(code) {
        let joined = end < at && code[end..at].trim() == "::";
        end = at + word.len();
        match all.last_mut() {
            Some(path) if joined => path.push(word.to_owned()),
            // A path that begins with `::` names another crate; a method is no path.
            _ if code[..at].trim_end().ends_with(['.']) || code[..at].ends_with("::") => {
                all.push(vec![String::new(), word.to_owned()]);
            }
            _ => all.push(vec![word.to_owned()]),
        }
    }
    all.retain(|p| p.len() > 1 && !p[0].is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
        let files: Vec<File> = files
            .iter()
            .map(|(path, text)| File { path: format!("c/src/{path}"), text: (*text).into() })
            .collect();
        let g = graph(&files, "c/src/");
        let named = |to: &BTreeSet<usize>| to.iter().map(|i| g.files[*i].clone()).collect();
        g.files.iter().cloned().zip(g.edges.iter().map(named)).collect()
    }

    fn edges_of(file: &str, files: &[(&str, &str)]) -> Vec<String> {
        crate_of(files).into_iter().find(|(f, _)| f == file).expect("in the crate").1
    }

    const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\npub use a::{A, One as Two};\n");

    #[test]
    fn a_reexported_name_is_its_definition() {
        let files = [LIB, ("a.rs", "pub struct A;"), ("b.rs", "use crate::{A, Two};")];
        assert_eq!(edges_of("b.rs", &files), ["a.rs"]);
        assert_eq!(edges_of("lib.rs", &files), [""; 0]);
    }

    #[test]
    fn a_module_that_is_imported_counts_by_what_is_named_in_it() {
        let files = [
            LIB,
            ("a/mod.rs", "pub mod c;\npub use c::C;\npub struct A;"),
            ("a/c.rs", "pub struct C;"),
            ("b.rs", "use crate::a::{self};\nfn f(_: a::C) {}"),
        ];
        assert_eq!(edges_of("b.rs", &files), ["a/c.rs"]);
        assert_eq!(edges_of("a/mod.rs", &files), [""; 0]);
    }

    #[test]
    fn paths_in_code_count_and_tests_do_not() {
        let code = "fn f() { crate::a::g(); std::a::g(); }\n#[cfg(test)]\nmod tests { use crate::c::C; }\n";
        let files = [("lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod c;"), ("a.rs", ""), ("b.rs", code)];
        assert_eq!(edges_of("b.rs", &files), ["a.rs"]);
        let code = "#[cfg(test)]\nuse crate::{a::A};\nstruct S { #[cfg(test)] x: crate::a::A, y: u8 }";
        assert_eq!(edges_of("b.rs", &[LIB, ("a.rs", ""), ("b.rs", code)]), [""; 0]);
    }

    #[test]
    fn a_parent_and_its_children() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b;\nmod c;\npub(crate) use c::C;\nfn f() { b::g() }"),
            ("a/b.rs", "use super::{C, c::D};"),
            ("a/c.rs", "use super::*;"),
        ];
        assert_eq!(edges_of("a/b.rs", &files), ["a/c.rs"]);
        assert_eq!(edges_of("a/mod.rs", &files), ["a/b.rs"]);
        assert_eq!(edges_of("a/c.rs", &files), ["a/mod.rs"]);
    }

    #[test]
    fn uses_are_taken_apart() {
        let (rest, imports) =
            split_imports("use a::{b, c as d, e::{self, f}}; pub(crate) use g::*; fn h() {}");
        let shown: Vec<String> =
            imports.iter().map(|i| format!("{} {} {}", i.path.join("::"), i.name, i.exported)).collect();
        let want = ["a::b b false", "a::c d false", "a::e e false", "a::e::f f false", "g * true"];
        assert_eq!(shown, want);
        assert!(rest.contains("fn h()") && !rest.contains('g'), "{rest}");
    }
}
