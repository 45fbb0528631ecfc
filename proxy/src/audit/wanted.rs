//! Which lines somebody looks for.

use serde_json::Value;

/// What a line must say. What is `None` may be anything.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// `user`
    pub user: Option<String>,
    /// `op`: an operation, admin path or job.
    pub op: Option<String>,
    /// `bucket`
    pub bucket: Option<String>,
    /// `request_id`
    pub request_id: Option<String>,
    /// Written at this time or later; as lines write it, so that text is in the order of time.
    pub since: Option<String>,
    /// Written before this time.
    pub until: Option<String>,
    /// Of a greater number.
    pub after: Option<u64>,
}

impl Wanted {
    /// Whether a line says all of it.
    pub fn fits(&self, line: &Value) -> bool {
        let at = line["at"].as_str().unwrap_or_default();
        let fields =
            [("user", &self.user), ("op", &self.op), ("bucket", &self.bucket), ("request_id", &self.request_id)];
        fields.iter().all(|(name, wanted)| wanted.as_deref().is_none_or(|wanted| line[*name] == wanted))
            && self.since.as_deref().is_none_or(|since| at >= since)
            && self.until.as_deref().is_none_or(|until| at < until)
            && self.after.is_none_or(|after| line["seq"].as_u64().is_some_and(|seq| seq > after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_fits_when_each_field_the_time_and_the_number_do() {
        let line = json!({"seq": 7, "at": "2026-11-24T12:00:00.000Z", "user": "ci"});
        let text = |text: &str| Some(text.to_owned());
        let noon = || text("2026-11-24T12:00:00.000Z");
        let fits = |wanted: Wanted| wanted.fits(&line);
        assert!(fits(Wanted::default()));
        assert!(fits(Wanted { user: text("ci"), since: noon(), after: Some(6), ..Wanted::default() }));
        assert!(!fits(Wanted { user: text("c"), ..Wanted::default() }));
        assert!(!fits(Wanted { until: noon(), ..Wanted::default() }));
        assert!(!fits(Wanted { since: text("2026-11-24T12:00:00.001Z"), ..Wanted::default() }));
        assert!(!fits(Wanted { after: Some(7), ..Wanted::default() }));
    }
}
