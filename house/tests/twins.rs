//! No two modules define a type of one name, as far as others can see it: a reader who finds the
//! name in a third module could not tell which is meant. Private types are left out.
//!
//! `twins.txt` holds the names that still have twins, and how many. A new one is refused; when one
//! is gone, `HOUSE_RECORD=1 cargo test -p house` writes the file anew.

use house::source::Crate;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};
use syn::{Item, Visibility};

type Places = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace is there")
}

/// The type that an item defines, unless it is private.
fn visible_type(item: &Item) -> Option<String> {
    let (visibility, name) = match item {
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        Item::Union(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    (!matches!(visibility, Visibility::Inherited)).then(|| name.to_string())
}

/// Visible types by name, with the files that define them. `house` and `models` stand beside the
/// program and are not looked at.
fn defined() -> Places {
    let mut found = Places::new();
    for entry in std::fs::read_dir(root()).expect("the root can be listed").filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (lib, main) = (entry.path().join("src/lib.rs"), entry.path().join("src/main.rs"));
        if ["house", "models"].contains(&name.as_str()) || !(lib.exists() || main.exists()) {
            continue;
        }
        let of = Crate::read(if lib.exists() { &lib } else { &main });
        for module in of.modules.values() {
            let file = module.file.strip_prefix(root()).unwrap_or(&module.file).display().to_string();
            for name in module.code.iter().filter_map(visible_type) {
                found.entry(name).or_default().insert(file.clone());
            }
        }
    }
    assert!(found.len() > 500, "only {} types were found", found.len());
    found
}

#[test]
fn no_visible_type_has_a_new_name_twin() {
    let twins: Places = defined().into_iter().filter(|(_, files)| files.len() > 1).collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("twins.txt");
    if std::env::var_os("HOUSE_RECORD").is_some() {
        let text: String = twins.iter().map(|(name, files)| format!("{name}: {}\n", files.len())).collect();
        std::fs::write(&file, text).expect("twins.txt can be written");
    }
    let recorded = std::fs::read_to_string(&file).expect("twins.txt is there");
    let bounds: BTreeMap<&str, usize> = recorded
        .lines()
        .map(|line| line.split_once(": ").expect("a name and a number"))
        .map(|(name, count)| (name, count.parse().expect("a number")))
        .collect();
    let new: Vec<String> = twins
        .iter()
        .filter(|(name, files)| files.len() > bounds.get(name.as_str()).copied().unwrap_or(1))
        .map(|(name, files)| format!("{name}: {files:?}"))
        .collect();
    assert!(new.is_empty(), "give these types names of their own, or keep them private:\n{}", new.join("\n"));
    let gone: Vec<&&str> = bounds
        .iter()
        .filter(|(name, count)| twins.get(**name).map_or(1, BTreeSet::len) < **count)
        .map(|(n, _)| n)
        .collect();
    println!("{} names have twins; lower the record of {gone:?}", twins.len());
}
