//! Lengths of functions, in lines of their source from the signature to the closing brace.

use crate::source::{attributes_of, is_test};
use syn::{
    ImplItemFn, Item, ItemFn,
    spanned::Spanned as _,
    visit::{self, Visit},
};

/// Name and length of each function of a file; tests are left out.
///
/// # Errors
/// When the text isn't Rust.
pub fn functions(text: &str) -> syn::Result<Vec<(String, usize)>> {
    let mut found = Functions::default();
    found.visit_file(&syn::parse_file(text)?);
    Ok(found.0)
}

#[derive(Default)]
struct Functions(Vec<(String, usize)>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let (first, last) = (signature.span().start().line, body.span().end().line);
        self.0.push((signature.ident.to_string(), last + 1 - first));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes_of(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}
