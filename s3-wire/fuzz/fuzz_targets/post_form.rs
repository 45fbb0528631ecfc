//! The fields of a form and its policy: any text is read or refused, and a form that a policy lets
//! through is refused with one field more that no condition names.

#![no_main]

use libfuzzer_sys::fuzz_target;
use s3_wire::post_policy::{FormFields, PostPolicy};
use std::time::UNIX_EPOCH;

const UNNAMED: &str = "a-field-that-no-condition-names";

fuzz_target!(|input: (&str, Vec<(&str, &str)>)| {
    let (policy, fields) = input;
    let mut form = FormFields::default();
    for (name, value) in fields {
        let known = form.get(&name.to_ascii_lowercase()).is_some();
        assert_eq!(form.push(name, value.to_owned()).is_err(), known);
    }
    let Ok(policy) = PostPolicy::parse(policy) else { return };
    let _ = policy.length();
    if policy.check("bucket", &form, UNIX_EPOCH).is_ok() && form.push(UNNAMED, String::new()).is_ok() {
        assert!(policy.check("bucket", &form, UNIX_EPOCH).is_err());
    }
});
