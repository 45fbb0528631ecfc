//! The shape of the workspace does not get worse, and its figures are printed: modules, arrows,
//! circles, arrows against the order of the engine's rooms, methods of `Engine`, the longest file
//! and function.
//!
//! `recorded.txt` holds how much of each still stands in the way. More is refused; when there is
//! less, lower the record: `HOUSE_RECORD=1 cargo test -p house` writes it anew. `HOUSE_LIST=1`
//! lists each obstacle.

use house::{
    graph::{against, circles},
    measure::functions,
    resolve::arrows,
    source::Crate,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::{Path, PathBuf},
};

/// The engine's rooms, each built on those before it (ARCHITECTURE.md).
const ROOMS: [&str; 18] = [
    "error",
    "facts",
    "metrics",
    "resources",
    "blobs",
    "deployment",
    "config",
    "bucket",
    "recovery",
    "bases",
    "read",
    "write",
    "background",
    "adopt",
    "report",
    "registry",
    "assembly",
    "lib",
];
const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 80;
const ENGINE_METHODS_MAX: usize = 40;

type Graph = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace is there")
}

/// The workspace's crates: directories of the root with a manifest and sources.
fn crates() -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(root()).expect("the root can be listed").filter_map(Result::ok);
    let mut found: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.join("Cargo.toml").exists() && path.join("src").exists())
        .map(|path| (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path))
        .collect();
    found.sort();
    assert!(found.len() >= 8, "the crates were not found: {found:?}");
    found
}

/// A crate's arrows between files, named without `src/` and `.rs`.
fn graph_of(directory: &Path) -> Graph {
    let sources = directory.join("src");
    let lib = sources.join("lib.rs");
    let root = if lib.exists() { lib } else { sources.join("main.rs") };
    let name = |file: &Path| file.strip_prefix(&sources).unwrap_or(file).with_extension("").display().to_string();
    let named = arrows(&Crate::read(&root));
    named.iter().map(|(from, to)| (name(from), to.iter().map(|to| name(to)).collect())).collect()
}

fn sources_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("sources can be listed").filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            sources_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// How many functions `impl Engine` blocks hold, and in which files of the engine.
fn engine_methods() -> (usize, BTreeSet<String>) {
    let mut files = Vec::new();
    sources_below(&root().join("engine/src"), &mut files);
    let (mut count, mut rooms) = (0, BTreeSet::new());
    for file in files.iter().filter(|file| !file.display().to_string().contains("/tests")) {
        let parsed = syn::parse_file(&std::fs::read_to_string(file).expect("a source")).expect("Rust");
        let blocks = parsed.items.iter().filter_map(|item| match item {
            syn::Item::Impl(block) if block.trait_.is_none() && is_engine(&block.self_ty) => Some(block),
            _ => None,
        });
        for block in blocks {
            count += block.items.iter().filter(|item| matches!(item, syn::ImplItem::Fn(_))).count();
            rooms.insert(file.strip_prefix(root()).unwrap_or(file).display().to_string());
        }
    }
    (count, rooms)
}

fn is_engine(of: &syn::Type) -> bool {
    matches!(of, syn::Type::Path(path) if path.path.is_ident("Engine"))
}

fn say(text: &str) {
    // Past the harness, which would keep it of a test that passes.
    writeln!(std::io::stderr(), "{text}").expect("stderr takes it");
}

/// What stands in the way, by kind.
#[derive(Default)]
struct Obstacles(BTreeMap<&'static str, Vec<String>>);

impl Obstacles {
    fn add(&mut self, kind: &'static str, found: impl IntoIterator<Item = String>) {
        self.0.entry(kind).or_default().extend(found);
    }

    /// A line for each kind: its name and how many there are.
    fn record(&self) -> String {
        self.0.iter().map(|(kind, found)| format!("{kind}: {}\n", found.len())).collect()
    }
}

#[test]
fn the_shape_is_as_recorded_or_better() {
    let mut obstacles = Obstacles::default();
    let (mut modules, mut arrow_count) = (0, 0);
    for (name, directory) in crates() {
        let graph = graph_of(&directory);
        modules += graph.len();
        arrow_count += graph.values().map(BTreeSet::len).sum::<usize>();
        obstacles.add("circles", circles(&graph).iter().map(|circle| told(&name, circle, &graph)));
        if name == "engine" {
            let turned = against(&graph, &ROOMS);
            obstacles.add("arrows against the order", turned.iter().map(|(from, to)| format!("{from} -> {to}")));
        }
    }
    let (methods, blocks) = engine_methods();
    obstacles.add("methods of Engine beyond 40", (ENGINE_METHODS_MAX..methods).map(|number| number.to_string()));
    obstacles.add("impl Engine elsewhere", blocks.iter().filter(|file| !file.ends_with("src/lib.rs")).cloned());
    let (longest_file, longest_function) = lengths(&mut obstacles);
    let count = |kind: &str| obstacles.0.get(kind).map_or(0, Vec::len);
    say(&format!(
        "modules {modules}, arrows {arrow_count}, circles {}, arrows against the order {}, Engine methods {methods} in \
         {} files, longest file {longest_file}, longest function {longest_function}",
        count("circles"),
        count("arrows against the order"),
        blocks.len()
    ));
    if std::env::var_os("HOUSE_LIST").is_some() {
        obstacles.0.iter().for_each(|(kind, found)| say(&format!("{kind}:\n  {}", found.join("\n  "))));
    }
    compare(&obstacles);
}

/// A circle's modules, each with those of them that it names.
fn told(name: &str, circle: &[String], graph: &Graph) -> String {
    let named =
        |from: &String| circle.iter().filter(|to| graph[from].contains(*to)).cloned().collect::<Vec<_>>().join(" ");
    circle
        .iter()
        .map(|from| format!("\n    {from} -> {}", named(from)))
        .fold(name.to_owned(), |told, line| told + &line)
}

/// The longest file and function; those over the bounds are obstacles.
fn lengths(obstacles: &mut Obstacles) -> (String, String) {
    let (mut longest_file, mut longest_function) = ((0, String::new()), (0, String::new()));
    for (_, directory) in crates() {
        let mut files = Vec::new();
        sources_below(&directory.join("src"), &mut files);
        for file in files {
            let name = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
            let text = std::fs::read_to_string(&file).expect("a source");
            let lines = text.lines().count();
            obstacles.add("long files", (lines > FILE_LINES_MAX).then(|| name.clone()));
            longest_file = longest_file.max((lines, name.clone()));
            for (function, lines) in functions(&text).expect("Rust") {
                let named = format!("{name} {function}");
                obstacles.add("long functions", (lines > FUNCTION_LINES_MAX).then(|| named.clone()));
                longest_function = longest_function.max((lines, named));
            }
        }
    }
    let told = |(lines, name): (usize, String)| format!("{lines} ({name})");
    (told(longest_file), told(longest_function))
}

fn compare(obstacles: &Obstacles) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded.txt");
    if std::env::var_os("HOUSE_RECORD").is_some() {
        std::fs::write(&file, obstacles.record()).expect("recorded.txt can be written");
    }
    let recorded = std::fs::read_to_string(&file).expect("recorded.txt is there");
    let bound = |kind: &str| {
        let line = recorded.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(": "));
        line.and_then(|count| count.parse().ok()).unwrap_or(0_usize)
    };
    for (kind, found) in &obstacles.0 {
        assert!(
            found.len() <= bound(kind),
            "{kind}: {} were recorded, now there are\n{}",
            bound(kind),
            found.join("\n")
        );
        if found.len() < bound(kind) {
            say(&format!("{kind}: {} now, lower the record of {}", found.len(), bound(kind)));
        }
    }
}
