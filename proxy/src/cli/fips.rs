//! A build with the feature `fips` does nothing unless its cryptography is the FIPS module's.

use super::outcome::Failure;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;

/// The module by name and version; `None` in a build without `fips`.
///
/// # Errors
/// The module is not in its FIPS mode, or TLS would be another library's.
pub(super) fn module() -> Result<Option<String>, Failure> {
    if crypto::FIPS { verdict(crypto::fips_module(), default_provider().fips()).map(Some) } else { Ok(None) }
}

fn verdict(module: Result<String, String>, is_tls_fips: bool) -> Result<String, Failure> {
    let refused = |why: &str| Failure(format!("this is a FIPS build and works with nothing else: {why}"));
    match module {
        Err(why) => Err(refused(&why)),
        Ok(_) if !is_tls_fips => Err(refused("TLS is not the module's")),
        Ok(module) => Ok(module),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_runs_without_the_module_or_with_another_tls() {
        let on = || Ok("AWS-LC FIPS 4".to_owned());
        assert_eq!(verdict(on(), true).ok().as_deref(), Some("AWS-LC FIPS 4"));
        let refused = |verdict: Result<String, Failure>| verdict.err().map(|Failure(why)| why).unwrap_or_default();
        assert!(refused(verdict(on(), false)).ends_with("TLS is not the module's"));
        assert!(refused(verdict(Err("FIPS mode not enabled!".into()), true)).ends_with("FIPS mode not enabled!"));
    }

    #[test]
    fn only_a_fips_build_asks_for_the_module() {
        assert_eq!(module().ok().flatten().is_some(), crypto::FIPS);
    }
}
