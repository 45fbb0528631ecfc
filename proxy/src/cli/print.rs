//! Answers of the admin API for people.

use serde_json::Value;
use std::fmt::Write as _;

/// A table of buckets and a line of totals.
pub(super) fn stats(stats: &Value) -> String {
    let mut rows = vec![["bucket", "objects", "logical", "stored", "ratio", "settings"].map(str::to_owned)];
    for bucket in stats["buckets"].as_array().into_iter().flatten() {
        let name = bucket["name"].as_str().unwrap_or_default();
        rows.push(row(if name.is_empty() { "(deleted)" } else { name }, bucket));
    }
    rows.push(row("total", &stats["totals"]));
    table(&rows)
}

fn row(name: &str, numbers: &Value) -> [String; 6] {
    let (logical, stored) = (number(&numbers["logical_bytes"]), number(&numbers["stored"]["total"]));
    let ratio = if stored == 0 { "-".to_owned() } else { format!("{:.2}", logical as f64 / stored as f64) };
    let setting = |name: &str| numbers["settings"][name].as_str().map(|value| format!("{name}={value}"));
    let settings: Vec<String> = ["compression", "encryption"].into_iter().filter_map(setting).collect();
    [name.to_owned(), number(&numbers["objects"]).to_string(), bytes(logical), bytes(stored), ratio, settings.join(" ")]
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Columns as wide as their widest cell; the first and last flush left.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|n| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (n, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = if n == 0 { "" } else { "  " };
            let _ = if n == 0 || n == N - 1 {
                write!(line, "{gap}{cell:<width$}")
            } else {
                write!(line, "{gap}{cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Any value as an indented outline; numbers of bytes in units as well.
pub(super) fn outline(value: &Value) -> String {
    let mut text = String::new();
    write_outline(&mut text, value, 0);
    text
}

fn write_outline(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            // What fits a line comes first, so that it is not lost behind long lists.
            for (key, value) in map.iter().filter(|(_, value)| !is_branch(value)) {
                let _ = writeln!(text, "{indent}{key}: {}", leaf(key, value));
            }
            for (key, value) in map.iter().filter(|(_, value)| is_branch(value)) {
                let _ = writeln!(text, "{indent}{key}:");
                write_outline(text, value, depth + 1);
            }
        }
        Value::Array(list) => {
            for value in list {
                if is_branch(value) {
                    let _ = writeln!(text, "{indent}-");
                    write_outline(text, value, depth + 1);
                } else {
                    let _ = writeln!(text, "{indent}- {}", leaf("", value));
                }
            }
        }
        value => {
            let _ = writeln!(text, "{indent}{}", leaf("", value));
        }
    }
}

fn is_branch(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn leaf(key: &str, value: &Value) -> String {
    match value {
        Value::Null | Value::Object(_) | Value::Array(_) => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if key.ends_with("bytes") || key.ends_with("_len") || key == "size" => {
            match number.as_u64() {
                Some(count) if count >= 1024 => format!("{count} ({})", bytes(count)),
                _ => number.to_string(),
            }
        }
        value => value.to_string(),
    }
}

/// A number of bytes in the largest unit that leaves at least one.
fn bytes(count: u64) -> String {
    let mut scaled = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if scaled < 1024.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{scaled:.1} {unit}") };
        }
        scaled /= 1024.0;
    }
    format!("{scaled:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn stats_are_a_table_with_its_columns_in_line() {
        let numbers =
            |logical: u64, stored: u64| json!({"objects": 2, "logical_bytes": logical, "stored": {"total": stored}});
        let mut bucket = numbers(4096, 1024);
        bucket["name"] = json!("photos");
        bucket["settings"] = json!({"compression": "delta", "encryption": "off"});
        let text = stats(&json!({"buckets": [bucket], "totals": numbers(4096, 0)}));
        let expected = "bucket  objects  logical   stored  ratio  settings\n\
                        photos        2  4.0 KiB  1.0 KiB   4.00  compression=delta encryption=off\n\
                        total         2  4.0 KiB      0 B      -\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn an_outline_shows_every_leaf_once() {
        let text = outline(&json!({"key": "a", "size": 2048, "bases": ["x", "y"], "blobs": [{"id": "1"}], "none": []}));
        let expected = "key: a\nnone: -\nsize: 2048 (2.0 KiB)\nbases:\n  - x\n  - y\nblobs:\n  -\n    id: 1\n";
        assert_eq!(text, expected);
    }
}
