//! Tells the crate which commit it is made of, as `DELTAWEIR_COMMIT`: what the build was told by
//! that variable, else what git says where a release is built in a checkout of this repository,
//! else `unknown`.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DELTAWEIR_COMMIT");
    let told = env::var("DELTAWEIR_COMMIT").ok().filter(|commit| !commit.is_empty());
    // A build for tests does not look: each commit would have it compile the crate again.
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = told.or_else(|| is_release.then(from_git).flatten());
    println!("cargo::rustc-env=DELTAWEIR_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

/// The commit of the checkout that this crate lies in; `None` for a tarball, without git, or where
/// git refuses.
fn from_git() -> Option<String> {
    let crate_directory = env::var_os("CARGO_MANIFEST_DIR")?;
    let root = Path::new(&crate_directory).parent()?;
    let git = |arguments: &[&str]| {
        let done = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let said = String::from_utf8(done.stdout).ok().filter(|_| done.status.success())?;
        Some(said.trim().to_owned())
    };
    // A tarball unpacked inside another repository has no part in that one's commits.
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for changed in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let path = root.join(git(&["rev-parse", "--git-path", changed])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&["rev-parse", "HEAD"])
}
