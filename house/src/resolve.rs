//! Which file defines the item that a path names, as far as the path stays in its crate.

use crate::source::{Crate, Import, Module, ModulePath};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};
use syn::visit::{self, Visit};

/// More re-exports than this in a row are taken for a circle of them.
const HOPS_MAX: usize = 16;

/// The files that each file's code names items of, itself left out.
pub fn arrows(of: &Crate) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let mut arrows: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    for (path, module) in &of.modules {
        let mut named = Named::default();
        module.code.iter().for_each(|item| named.visit_item(item));
        let private = module.imports.values().chain(&module.globs).filter(|import| !import.is_reexport);
        named.paths.extend(private.map(|import| import.path.clone()));
        let targets = named.paths.iter().filter_map(|named| of.defined_in(path, named, 0));
        let files = targets.map(|target| of.modules[&target].file.clone()).filter(|file| *file != module.file);
        arrows.entry(module.file.clone()).or_default().extend(files);
    }
    arrows
}

impl Crate {
    /// The module that defines the item a path names, seen from a module; none when it is of
    /// another crate.
    fn defined_in(&self, from: &[String], path: &[String], hops: usize) -> Option<ModulePath> {
        let (first, rest) = path.split_first()?;
        let here = self.modules.get(from)?;
        match first.as_str() {
            _ if hops > HOPS_MAX => None,
            "crate" => self.follow(Vec::new(), rest, hops),
            "self" => self.follow(from.to_vec(), rest, hops),
            "super" => self.follow(from[..from.len().checked_sub(1)?].to_vec(), rest, hops),
            "Self" => None,
            name => {
                let known = here.items.contains(name)
                    || here.imports.contains_key(name)
                    || self.modules.contains_key(&child(from, name));
                if known { self.follow(from.to_vec(), path, hops) } else { self.through_globs(here, from, path, hops) }
            }
        }
    }

    /// Walks on from a module; where it ends is where the item is defined.
    fn follow(&self, module: ModulePath, rest: &[String], hops: usize) -> Option<ModulePath> {
        let Some((name, rest)) = rest.split_first() else { return Some(module) };
        let here = self.modules.get(&module)?;
        if name == "super" {
            return self.follow(module[..module.len().checked_sub(1)?].to_vec(), rest, hops);
        }
        let inner = child(&module, name);
        if self.modules.contains_key(&inner) {
            return self.follow(inner, rest, hops);
        }
        if here.items.contains(name) {
            return Some(module);
        }
        if let Some(import) = here.imports.get(name) {
            let path: Vec<String> = import.path.iter().chain(rest).cloned().collect();
            // A name that is brought in under itself (`use http;`) is another crate's.
            return if import.path == [name.as_str()] { None } else { self.defined_in(&module, &path, hops + 1) };
        }
        let path: Vec<String> = [name].into_iter().chain(rest).cloned().collect();
        self.through_globs(here, &module, &path, hops)
    }

    fn through_globs(&self, here: &Module, from: &[String], path: &[String], hops: usize) -> Option<ModulePath> {
        here.globs.iter().find_map(|Import { path: through, .. }| {
            let target = self.defined_in(from, through, hops + 1).filter(|target| target != from)?;
            let there = &self.modules[&target];
            let has = there.items.contains(&path[0])
                || there.imports.contains_key(&path[0])
                || self.modules.contains_key(&child(&target, &path[0]));
            has.then(|| self.follow(target, path, hops + 1)).flatten()
        })
    }
}

fn child(of: &[String], name: &str) -> ModulePath {
    of.iter().cloned().chain([name.to_owned()]).collect()
}

/// Every path in code, those in macros' arguments too.
#[derive(Default)]
struct Named {
    paths: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Named {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.scan(call.tokens.clone());
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        // One in a function's body; those of modules are read with the module.
        self.scan(import.tree.to_token_stream());
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !crate::source::is_test(crate::source::attributes_of(item)) {
            visit::visit_item(self, item);
        }
    }
}

impl Named {
    /// Tokens that nobody parsed: runs of names with `::` between them.
    fn scan(&mut self, tokens: TokenStream) {
        let mut run: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.end(&mut run);
                    }
                    run.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && !run.is_empty() => colons += 1,
                TokenTree::Group(group) => {
                    self.end(&mut run);
                    self.scan(group.stream());
                    colons = 0;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.end(&mut run);
                    colons = 0;
                }
            }
        }
        self.end(&mut run);
    }

    /// A single name in tokens may be a variable; only one that begins with a capital is taken for
    /// an item.
    fn end(&mut self, run: &mut Vec<String>) {
        let run = std::mem::take(run);
        if run.len() > 1 || run.first().is_some_and(|name| name.starts_with(char::is_uppercase)) {
            self.paths.push(run);
        }
    }
}
