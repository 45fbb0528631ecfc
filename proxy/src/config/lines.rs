//! In which line of a configuration a key stands.

use toml::de::{DeTable, DeValue};

/// The line of a key such as `server.listen` or `users[1].policy`: of its innermost part that is
/// there. Of several keys, separated by commas, it is the first one that is there. `None` where the
/// text has none of them.
pub(super) fn line_of(text: &str, keys: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let at = keys.split(", ").find_map(|key| in_table(document.get_ref(), key))?;
    Some(text.get(..at)?.lines().count().max(1) + usize::from(text[..at].ends_with('\n')))
}

/// Where the innermost part of a path begins that a table has.
fn in_table(table: &DeTable<'_>, path: &str) -> Option<usize> {
    let places = table.iter().filter_map(|(name, value)| {
        let rest = path.strip_prefix(&**name.get_ref())?;
        let inner = if rest.is_empty() { None } else { below(value.get_ref(), rest)? };
        Some((rest.len(), inner.unwrap_or(name.span().start)))
    });
    // A name may hold dots, so that a path cannot be cut into names without the table: of `a` and
    // `a.b`, the longer one is meant.
    places.min_by_key(|(rest, _)| *rest).map(|(_, place)| place)
}

/// Where what follows a name begins: `.NAME…` in a table, `[NUMBER]…` in a list. The outer `None`
/// says that no path goes on like that, the inner one that there is nothing of it.
fn below(value: &DeValue<'_>, rest: &str) -> Option<Option<usize>> {
    if let Some(path) = rest.strip_prefix('.') {
        let DeValue::Table(table) = value else { return Some(None) };
        return Some(in_table(table, path));
    }
    let (number, rest) = rest.strip_prefix('[')?.split_once(']')?;
    let DeValue::Array(values) = value else { return Some(None) };
    let Some(one) = values.get(number.parse::<usize>().ok()?) else { return Some(None) };
    let inner = if rest.is_empty() { None } else { below(one.get_ref(), rest)? };
    Some(inner.or(Some(one.span().start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_its_line_however_it_is_written() {
        let text = "\
# the first line
[server]
listen = \"x\"
tls_key = \"y\"

[buckets.\"a.b\"]
compression = \"gzip\"
[buckets.a]
effort = \"z\"

[[users]]
name = \"u\"
[[users]]
name = \"v\"
policy = \"p\"
";
        for (key, line) in [
            ("server", Some(2)),
            ("server.listen", Some(3)),
            ("server.tls_cert, server.tls_key", Some(2)),
            ("server.none", Some(2)),
            ("buckets.a.b.compression", Some(7)),
            ("buckets.a.effort", Some(9)),
            ("users[1].policy", Some(15)),
            ("users[0].policy", Some(11)),
            ("users[7].policy", Some(11)),
            ("storage.kek", None),
            ("DELTAWEIR_KEK", None),
        ] {
            assert_eq!(line_of(text, key), line, "{key}");
        }
        assert_eq!(line_of("not toml", "server"), None);
    }
}
