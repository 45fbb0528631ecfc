//! Patterns of actions, resources and condition values: `*` stands for any run of characters, `?`
//! for exactly one, `${key}` for what the request's context says.

use crate::context::{Context, Key};

/// A pattern, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    parts: Vec<Part>,
    variables: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Char(char),
    Any,
    One,
    Variable { key: Key, default: Option<String> },
}

impl Pattern {
    /// Reads a pattern; `variables` says whether `${…}` means anything, which it does since version
    /// 2012-10-17.
    ///
    /// # Errors
    /// A variable without an end, without a name, or with an unknown one.
    pub(crate) fn parse(text: &str, variables: bool) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        let mut has_variables = false;
        while let Some(c) = rest.chars().next() {
            if variables && let Some(after) = rest.strip_prefix("${") {
                let (inside, after) =
                    after.split_once('}').ok_or_else(|| format!("{text:?} has a variable without an end"))?;
                let part = variable(inside).ok_or_else(|| format!("{text:?} has an unknown variable ${{{inside}}}"))?;
                has_variables |= matches!(part, Part::Variable { .. });
                parts.push(part);
                rest = after;
                continue;
            }
            parts.push(match c {
                '*' => Part::Any,
                '?' => Part::One,
                c => Part::Char(c),
            });
            rest = &rest[c.len_utf8()..];
        }
        Ok(Self { parts, variables: has_variables })
    }

    /// A pattern in which nothing but its text stands.
    pub(crate) fn literal(text: &str) -> Self {
        Self { parts: text.chars().map(Part::Char).collect(), variables: false }
    }

    /// Whether nothing but one text fits it, whoever asks.
    pub(crate) fn is_fixed(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Char(_)))
    }

    /// The one text that fits it.
    pub(crate) fn fixed(&self) -> Option<String> {
        let chars = self.parts.iter().map(|part| if let Part::Char(c) = part { Some(*c) } else { None });
        chars.collect()
    }

    /// The keys of its variables.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.parts.iter().filter_map(|part| if let Part::Variable { key, .. } = part { Some(key) } else { None })
    }

    /// Whether a text fits. `fold` ignores the case of ASCII letters.
    pub(crate) fn matches(&self, text: &str, context: &dyn Context, fold: bool) -> bool {
        if !self.variables {
            return fits(&self.parts, text, fold);
        }
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            match part {
                Part::Variable { key, default } => match value(key, context).or_else(|| default.clone()) {
                    // What a variable stands for is text: a star in a user's name is a star.
                    Some(value) => parts.extend(value.chars().map(Part::Char)),
                    None => return false,
                },
                part => parts.push(part.clone()),
            }
        }
        fits(&parts, text, fold)
    }

    /// Whether every text fits that begins with `below`; only patterns that end with a star can
    /// tell.
    pub(crate) fn fits_all_below(&self, below: &str, context: &dyn Context) -> bool {
        // Whatever stands behind `below`, the last star takes it, too.
        self.parts.last() == Some(&Part::Any) && self.matches(below, context, false)
    }

    /// False when no text fits that begins with `below`; true where that cannot be told.
    pub(crate) fn may_fit_below(&self, below: &str) -> bool {
        let head: String =
            self.parts.iter().map_while(|part| if let Part::Char(c) = part { Some(*c) } else { None }).collect();
        head.starts_with(below) || (!self.is_fixed() && below.starts_with(&head))
    }

    /// The text with its variables replaced, for operators that take no wildcards; `None` when one
    /// has no value.
    pub(crate) fn text(&self, context: &dyn Context) -> Option<String> {
        let mut out = String::with_capacity(self.parts.len());
        for part in &self.parts {
            match part {
                Part::Char(c) => out.push(*c),
                Part::Any => out.push('*'),
                Part::One => out.push('?'),
                Part::Variable { key, default } => out.push_str(&value(key, context).or_else(|| default.clone())?),
            }
        }
        Some(out)
    }
}

fn value(key: &Key, context: &dyn Context) -> Option<String> {
    // A key with several values has no one text.
    let mut values = context.values(key)?;
    if values.len() == 1 { values.pop() } else { None }
}

/// What stands between `${` and `}`: an escaped character, or a key with an optional default.
fn variable(inside: &str) -> Option<Part> {
    if let "*" | "?" | "$" = inside {
        return inside.chars().next().map(Part::Char);
    }
    let (name, default) = match inside.split_once(',') {
        None => (inside, None),
        Some((name, default)) => {
            let default = default.trim().strip_prefix('\'')?.strip_suffix('\'')?;
            (name, Some(default.to_owned()))
        }
    };
    Some(Part::Variable { key: Key::parse(name.trim())?, default })
}

/// Linear in the text for each star: no pattern makes it explode.
fn fits(pattern: &[Part], text: &str, fold: bool) -> bool {
    let same = |a: char, b: char| a == b || (fold && a.eq_ignore_ascii_case(&b));
    let mut p = 0;
    let mut rest = text.chars();
    let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
    loop {
        if let Some(Part::Any) = pattern.get(p) {
            p += 1;
            retry = Some((p, rest.clone()));
            if p == pattern.len() {
                return true;
            }
            continue;
        }
        let mut after = rest.clone();
        let Some(c) = after.next() else {
            return pattern[p..].iter().all(|part| *part == Part::Any);
        };
        let fit = match pattern.get(p) {
            Some(Part::One) => true,
            Some(Part::Char(wanted)) => same(*wanted, c),
            _ => false,
        };
        if fit {
            p += 1;
            rest = after;
            continue;
        }
        match &mut retry {
            Some((after_star, from)) => {
                from.next();
                (p, rest) = (*after_star, from.clone());
            }
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{MapContext, NoContext};
    use proptest::prelude::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::parse(pattern, true).unwrap().matches(text, &NoContext, false)
    }

    #[test]
    fn stars_and_question_marks_match_what_they_stand_for() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*", "a", true),
            ("*a", "ba", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "ab/a", false),
            ("?", "é", true),
            ("a**b", "ab", true),
            ("*ab", "aab", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern:?} {text:?}");
        }
        assert!(!matches(&"*a".repeat(40), &"a".repeat(39)));
        assert!(!matches(&("*a".repeat(200) + "b"), &"a".repeat(5000)), "and it ends soon");
    }

    #[test]
    fn what_fits_all_texts_with_a_beginning_and_what_may_fit_some() {
        let pattern = |text: &str| Pattern::parse(text, true).unwrap();
        for (text, below, all, some) in [
            ("*", "b/", true, true),
            ("b/*", "b/", true, true),
            ("b/*", "b/x/", true, true),
            ("b/x/*", "b/", false, true),
            ("b/x/*", "b/y/", false, false),
            ("b/*/y", "b/x/", false, true),
            ("b/?*", "b/", false, true),
            ("b/?*", "b/x", true, true),
            ("b", "b/", false, false),
            ("b/x", "b/", false, true),
            ("b/${aws:username}/*", "b/ann/", false, true),
        ] {
            let fits = (pattern(text).fits_all_below(below, &NoContext), pattern(text).may_fit_below(below));
            assert_eq!(fits, (all, some), "{text} {below}");
        }
    }

    #[test]
    fn variables_stand_for_text_alone() {
        let context = MapContext::from_iter([("aws:username", "a*"), ("aws:SourceIp", "1.2.3.4")]);
        let matches = |pattern: &str, text: &str| Pattern::parse(pattern, true).unwrap().matches(text, &context, false);
        assert!(matches("home/${aws:username}/*", "home/a*/x"));
        assert!(!matches("home/${aws:username}/*", "home/ab/x"), "a star in a value is a star");
        assert!(!matches("${aws:userid}", ""), "a variable without a value fits nothing");
        assert!(matches("${aws:userid, 'nobody'}", "nobody"));
        assert!(matches("${*}${?}${$}", "*?$"));
        assert!(!matches("${*}", "x"));
        assert!(Pattern::parse("${aws:username", true).is_err());
        assert!(Pattern::parse("${no-such-key}", true).is_err());
        assert!(Pattern::parse("${aws:username", false).is_ok(), "the old version knows no variables");
    }

    proptest! {
        #[test]
        fn a_text_fits_itself_and_any_pattern_made_by_starring_a_part_of_it(text in "[a-c/é]{0,12}", from in 0_usize..13, len in 0_usize..13) {
            prop_assert!(matches(&text, &text));
            let chars: Vec<char> = text.chars().collect();
            let from = from.min(chars.len());
            let to = (from + len).min(chars.len());
            let starred: String = chars[..from].iter().chain(&['*']).chain(&chars[to..]).collect();
            prop_assert!(matches(&starred, &text));
        }

        #[test]
        fn what_is_said_of_all_texts_below_holds_of_each(text in "[ab/*?]{0,8}", below in "[ab/]{0,4}", rest in "[ab/]{0,4}") {
            let pattern = Pattern::parse(&text, false).unwrap();
            let fits = pattern.matches(&format!("{below}{rest}"), &NoContext, false);
            prop_assert!(fits || !pattern.fits_all_below(&below, &NoContext));
            prop_assert!(!fits || pattern.may_fit_below(&below));
        }

        #[test]
        fn folding_ignores_case_and_nothing_else(text in "[a-zA-Z:*]{0,12}") {
            let pattern = Pattern::parse(&text, false).unwrap();
            prop_assert!(pattern.matches(&text.to_uppercase(), &NoContext, true));
        }
    }
}
