//! Suggestions for misspelled names.

/// Maximum number of suggestions.
pub(crate) const MOST: usize = 3;

/// Maximum characters of a name that is compared.
const LONGEST: usize = 200;

/// Returns the names most similar to `word`, best first.
pub(crate) fn closest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word = word.to_lowercase();
    let length = word.chars().count();
    if length > LONGEST {
        return Vec::new();
    }
    let most = (length.max(3) / 3).max(1);
    let mut ranked: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let lower = name.to_lowercase();
            // The distance is at least the difference in length, so much longer names need no comparison.
            let longer = lower.chars().count().abs_diff(length);
            let distance = if longer > most { longer } else { strsim::damerau_levenshtein(&word, &lower) };
            let near = distance <= most;
            let within = word.len() >= 3 && (lower.contains(&word) || word.contains(&lower));
            (near || within).then_some((distance, name))
        })
        .collect();
    ranked.sort_by_key(|(distance, _)| *distance);
    ranked.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// Returns "did you mean `a` or `b`?" if any name is similar to `word`.
pub(crate) fn did_you_mean<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    did_you_mean_one_of(&closest(word, names))
}

/// Returns "did you mean `a` or `b`?" for these names, if any.
pub(crate) fn did_you_mean_one_of(names: &[&str]) -> Option<String> {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let (last, first) = names.split_last()?;
    Some(match first {
        [] => format!("did you mean {last}?"),
        _ => format!("did you mean {} or {last}?", first.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 5] = ["calculate", "chart", "countdown", "get_weather", "time"];

    #[test]
    fn a_mistyped_name_finds_the_right_one() {
        assert_eq!(closest("chrat", NAMES), ["chart"]);
        assert_eq!(closest("Calculat", NAMES), ["calculate"]);
        assert_eq!(closest("weather", NAMES), ["get_weather"]);
        assert_eq!(did_you_mean("tmie", NAMES).as_deref(), Some("did you mean `time`?"));
    }

    #[test]
    fn very_long_and_very_many_names_are_compared_quickly() {
        let long = "x".repeat(1_000_000);
        let many: Vec<String> = (0..10_000).map(|number| format!("tool_{number}")).collect();
        let names = || many.iter().map(String::as_str).chain([long.as_str(), "chart"]);
        let began = std::time::Instant::now();
        assert_eq!(closest("chrat", names()), ["chart"]);
        assert!(closest(&long, names()).is_empty());
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[test]
    fn a_name_like_no_other_suggests_nothing() {
        assert_eq!(did_you_mean("xylophone", NAMES), None);
        assert_eq!(did_you_mean("", NAMES), None);
    }
}
