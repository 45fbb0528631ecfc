//! Arrows between modules: circles, and arrows against an order of rooms.

use std::collections::{BTreeMap, BTreeSet};

/// The sets of two or more that reach each other, largest first.
pub fn circles<T: Ord + Clone>(arrows: &BTreeMap<T, BTreeSet<T>>) -> Vec<Vec<T>> {
    let reach: BTreeMap<&T, BTreeSet<&T>> = arrows.keys().map(|from| (from, reachable(arrows, from))).collect();
    let mut placed: BTreeSet<&T> = BTreeSet::new();
    let mut circles = Vec::new();
    for (from, reached) in &reach {
        if !reached.contains(*from) || !placed.insert(from) {
            continue;
        }
        let others = reached.iter().filter(|to| reach.get(**to).is_some_and(|back| back.contains(*from)));
        let circle: Vec<T> = others.map(|to| (*to).clone()).collect();
        placed.extend(reached.iter().filter(|to| circle.contains(to)));
        circles.push(circle);
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn reachable<'a, T: Ord>(arrows: &'a BTreeMap<T, BTreeSet<T>>, from: &T) -> BTreeSet<&'a T> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&T> = arrows.get(from).into_iter().flatten().collect();
    while let Some(to) = next.pop() {
        if reached.insert(to) {
            next.extend(arrows.get(to).into_iter().flatten());
        }
    }
    reached
}

/// The arrows that lead from a room to one that stands behind it in `order`. A module outside every
/// room has no place.
pub fn against<'a>(arrows: &'a BTreeMap<String, BTreeSet<String>>, order: &[&str]) -> Vec<(&'a String, &'a String)> {
    let place = |module: &str| {
        let room = module.split_once('/').map_or(module, |(room, _)| room);
        order.iter().position(|known| *known == room)
    };
    let all = arrows.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    all.filter(|(from, to)| matches!((place(from), place(to)), (Some(from), Some(to)) if to > from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, BTreeSet<String>> {
        let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in pairs {
            arrows.entry((*from).into()).or_default().insert((*to).into());
            arrows.entry((*to).into()).or_default();
        }
        arrows
    }

    #[test]
    fn modules_that_reach_each_other_are_one_circle() {
        let found = circles(&of(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "f"), ("f", "e"), ("d", "e")]));
        assert_eq!(found, [vec!["a", "b", "c"], vec!["e", "f"]]);
        assert!(circles(&of(&[("a", "b"), ("a", "c"), ("b", "c")])).is_empty());
    }

    #[test]
    fn an_arrow_to_a_later_room_is_against_the_order() {
        let arrows = of(&[("read/object", "blobs/open"), ("blobs/open", "read/heat"), ("lib", "read/heat")]);
        let found = against(&arrows, &["blobs", "read"]);
        assert_eq!(found, [(&"blobs/open".to_owned(), &"read/heat".to_owned())]);
    }
}
