//! The sources of a crate as a tree of modules.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};
use syn::{Attribute, Item, ItemUse, UseTree, Visibility};

/// A path from the crate's root: `["ops", "put"]`.
pub type ModulePath = Vec<String>;

/// A name that a `use` brings into a module.
#[derive(Clone, Debug)]
pub struct Import {
    /// The segments as written.
    pub path: Vec<String>,
    /// Whether others can reach the name through this module.
    pub is_reexport: bool,
}

/// A module: what its file, or its block in a file, defines and brings in.
#[derive(Default)]
pub struct Module {
    /// The file it stands in.
    pub file: PathBuf,
    /// The items it defines, by name.
    pub items: BTreeSet<String>,
    /// The names it brings in.
    pub imports: BTreeMap<String, Import>,
    /// The modules whose every name it brings in.
    pub globs: Vec<Import>,
    /// Its code, without tests and without the modules in it.
    pub code: Vec<Item>,
}

/// A crate's modules by their paths.
#[derive(Default)]
pub struct Crate {
    /// The modules.
    pub modules: BTreeMap<ModulePath, Module>,
}

impl Crate {
    /// Reads a crate from its root file and the files that its `mod` items name.
    ///
    /// # Panics
    /// When a file is missing or isn't Rust.
    pub fn read(root: &Path) -> Self {
        let mut found = Self::default();
        found.read_file(root, Vec::new());
        found
    }

    fn read_file(&mut self, file: &Path, path: ModulePath) {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let directory = file.parent().unwrap_or(Path::new(""));
        let children = match stem {
            "lib" | "main" | "mod" => directory.to_path_buf(),
            _ => directory.join(stem),
        };
        self.read_items(parsed.items, file, &children, path);
    }

    fn read_items(&mut self, items: Vec<Item>, file: &Path, children: &Path, path: ModulePath) {
        let mut module = Module { file: file.to_path_buf(), ..Module::default() };
        for item in items {
            if is_test(attributes_of(&item)) {
                continue;
            }
            if let Some(name) = name_of(&item) {
                module.items.insert(name);
            }
            match item {
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let inner: ModulePath = path.iter().cloned().chain([name.clone()]).collect();
                    match child.content {
                        Some((_, items)) => self.read_items(items, file, &children.join(name), inner),
                        None => self.read_file(&file_of(children, &name), inner),
                    }
                }
                Item::Use(import) => bring_in(&mut module, &import),
                item => module.code.push(item),
            }
        }
        self.modules.insert(path, module);
    }
}

fn file_of(directory: &Path, name: &str) -> PathBuf {
    let flat = directory.join(format!("{name}.rs"));
    if flat.exists() { flat } else { directory.join(name).join("mod.rs") }
}

/// Whether an item is compiled for tests alone.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// The attributes of an item; none of the kinds that the workspace doesn't have.
pub fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn bring_in(module: &mut Module, import: &ItemUse) {
    let is_reexport = !matches!(import.vis, Visibility::Inherited);
    flatten(&import.tree, &mut Vec::new(), &mut |name, path| {
        let import = Import { path: path.to_vec(), is_reexport };
        match name {
            Some(name) => drop(module.imports.insert(name, import)),
            None => module.globs.push(import),
        }
    });
}

fn flatten(tree: &UseTree, path: &mut Vec<String>, found: &mut impl FnMut(Option<String>, &[String])) {
    match tree {
        UseTree::Path(step) => {
            path.push(step.ident.to_string());
            flatten(&step.tree, path, found);
            path.pop();
        }
        UseTree::Name(name) if name.ident == "self" => found(path.last().cloned(), path),
        UseTree::Name(name) => {
            path.push(name.ident.to_string());
            found(path.last().cloned(), path);
            path.pop();
        }
        UseTree::Rename(renamed) => {
            let itself = renamed.ident == "self";
            path.extend((!itself).then(|| renamed.ident.to_string()));
            found(Some(renamed.rename.to_string()), path);
            path.truncate(path.len() - usize::from(!itself));
        }
        UseTree::Glob(_) => found(None, path),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, path, found)),
    }
}
