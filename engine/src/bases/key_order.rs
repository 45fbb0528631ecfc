//! Which existing key is most likely an earlier version of a new one, by name alone.
//!
//! Names are compared in natural order: runs of digits count as numbers, so `app-1.10` comes after
//! `app-1.9`.

use std::cmp::Ordering;

/// The candidates to try as bases for `key`, best first, at most `limit`. `neighbours` are keys of
/// the same prefix, in any order, without `key`.
///
/// Names of the same shape (equal but for their numbers) come first, among them the nearest smaller
/// version, then the nearest greater; then the names with the same extension and the same first
/// letters that share the longest start and end with `key`.
pub(crate) fn rank<'a>(key: &str, neighbours: impl IntoIterator<Item = &'a String>, limit: usize) -> Vec<&'a str> {
    let shape = shape_of(key);
    let extension = extension_of(key);
    let (mut same_shape, mut others): (Vec<&str>, Vec<&str>) =
        neighbours.into_iter().map(String::as_str).partition(|name| shape_of(name) == shape);
    same_shape.sort_by(|a, b| natural(a, b));
    let below = same_shape.partition_point(|name| natural(name, key) == Ordering::Less);
    let (smaller, greater) = same_shape.split_at(below);
    let stem = common_stem_min(key);
    others.retain(|name| extension_of(name) == extension && common_start(key, name) >= stem);
    others.sort_by_key(|name| std::cmp::Reverse(common_start(key, name) + common_end(key, name)));
    smaller.iter().rev().chain(greater).chain(&others).copied().take(limit).collect()
}

/// The part of a key up to and including its last `/`.
pub fn prefix_of(key: &str) -> &str {
    &key[..key.rfind('/').map_or(0, |slash| slash + 1)]
}

/// Compares names with runs of ASCII digits as numbers of any length.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        match (a.first(), b.first()) {
            (None, None) => return Ordering::Equal,
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let ((x, rest_a), (y, rest_b)) = (take_number(a), take_number(b));
                // Without leading zeros a longer number is greater.
                let order = x.len().cmp(&y.len()).then_with(|| x.cmp(y));
                if order != Ordering::Equal {
                    return order;
                }
                (a, b) = (rest_a, rest_b);
            }
            (Some(x), Some(y)) if x == y => (a, b) = (&a[1..], &b[1..]),
            (Some(x), Some(y)) => return x.cmp(y),
        }
    }
}

fn take_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let zeros = digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len());
    (&digits[zeros..], rest)
}

/// How far another shape of name must agree with `key` to be of its family: three characters of the
/// file's name, or all before its first digit if that is less.
fn common_stem_min(key: &str) -> usize {
    let file = prefix_of(key).len();
    file + key.as_bytes()[file..].iter().take(3).take_while(|byte| !byte.is_ascii_digit()).count()
}

/// A name with every run of digits replaced by one `#`.
pub fn shape_of(name: &str) -> Vec<u8> {
    let mut shape = Vec::with_capacity(name.len());
    for byte in name.bytes() {
        if !byte.is_ascii_digit() {
            shape.push(byte);
        } else if shape.last() != Some(&b'#') {
            shape.push(b'#');
        }
    }
    shape
}

fn extension_of(name: &str) -> &str {
    let file = &name[prefix_of(name).len()..];
    file.rfind('.').map_or("", |dot| &file[dot..])
}

fn common_start(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count()
}

fn common_end(a: &str, b: &str) -> usize {
    a.bytes().rev().zip(b.bytes().rev()).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(key: &str, names: &[&str]) -> Vec<String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        rank(key, &names, 3).into_iter().map(String::from).collect()
    }

    #[test]
    fn the_nearest_smaller_version_comes_first_even_where_byte_order_says_otherwise() {
        let best =
            ranked("r/app-1.10.0.tar", &["r/app-1.9.0.tar", "r/app-1.11.0.tar", "r/app-1.2.0.tar", "r/app-1.1.0.tar"]);
        assert_eq!(best, ["r/app-1.9.0.tar", "r/app-1.2.0.tar", "r/app-1.1.0.tar"]);
    }

    #[test]
    fn another_shape_comes_after_the_same_shape_and_another_extension_never() {
        let best = ranked("d/app-7.bin", &["d/app-linux-7.bin", "d/app-3.bin", "d/app-7.txt"]);
        assert_eq!(best, ["d/app-3.bin", "d/app-linux-7.bin"]);
    }

    #[test]
    fn a_name_of_another_family_is_no_candidate() {
        assert_eq!(ranked("django-5.2.16.tar", &["duckdb-1.1.0.tar", "duckdb-1.1.1.tar"]), Vec::<String>::new());
    }

    #[test]
    fn numbers_of_any_length_compare_as_numbers() {
        assert_eq!(natural("a99999999999999999999999", "a100000000000000000000000"), Ordering::Less);
        assert_eq!(natural("a007", "a7"), Ordering::Equal);
        assert_eq!(natural("a", "a1"), Ordering::Less);
    }
}
