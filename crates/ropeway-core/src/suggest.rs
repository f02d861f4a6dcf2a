//! Suggestions for misspelled names.

/// Maximum number of suggestions.
pub const MAX_SUGGESTIONS: usize = 3;

/// Maximum characters in a word that is compared, since the time is quadratic in the length.
const MAX_LENGTH: usize = 200;

/// Minimum bytes in a word that is searched for within other words.
const MIN_PART: usize = 3;

/// Returns up to three names that are similar to `word`, best first. Case and separators are ignored.
pub fn closest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word = normalized(word);
    let length = word.chars().count();
    if length == 0 || length > MAX_LENGTH {
        return Vec::new();
    }
    let tolerance = (length / 3).max(1);
    let is_part = |part: &str, whole: &str| part.len() >= MIN_PART && whole.contains(part);
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let other = normalized(name);
            // The distance is at least the difference in length, so much longer names need no comparison.
            let longer = other.chars().count().abs_diff(length);
            let distance = if longer > tolerance { longer } else { strsim::osa_distance(&word, &other) };
            let is_near = distance <= tolerance
                || is_part(&word, &other)
                || is_part(&other, &word)
                || is_abbreviation(&word, &other);
            is_near.then_some((distance, name))
        })
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

/// Returns `true` for a short form such as `vals` for `values`: the same letters in order, from the first on, and at least half
/// of them.
fn is_abbreviation(short: &str, whole: &str) -> bool {
    let is_long_enough = short.len() >= MIN_PART && short.len() * 2 >= whole.len();
    let mut letters = whole.chars();
    is_long_enough
        && short.chars().next() == whole.chars().next()
        && short.chars().all(|c| letters.any(|other| other == c))
}

fn normalized(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Returns "did you mean `a` or `b`?" if any name is similar to `word`.
pub fn did_you_mean<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    did_you_mean_one_of(&closest(word, names))
}

/// Returns "did you mean `a` or `b`?" for these names, if any.
pub fn did_you_mean_one_of(names: &[impl AsRef<str>]) -> Option<String> {
    let names: Vec<String> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
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
        assert_eq!(closest("Get-Wether", NAMES), ["get_weather"]);
        assert_eq!(did_you_mean("tmie", NAMES).as_deref(), Some("did you mean `time`?"));
    }

    #[test]
    fn similar_names_are_suggested_for_an_unknown_name() {
        let closest = |word: &str| closest(word, ["mcp_web_search", "mcp_git_log", "mcp_git_blame", "add"]);
        assert_eq!(closest("search"), ["mcp_web_search"]);
        assert_eq!(closest("mcp_git_lgo"), ["mcp_git_log"]);
        assert_eq!(closest("functions.add"), ["add"]);
        assert_eq!(closest("xylophone"), [""; 0]);
        assert_eq!(closest(""), [""; 0]);
        assert_eq!(closest(&"x".repeat(1 << 20)), [""; 0]);
    }

    #[test]
    fn a_short_form_suggests_the_whole_name() {
        let closest = |word: &str| closest(word, ["values", "message", "width", "kind"]);
        assert_eq!(closest("vals"), ["values"]);
        assert_eq!(closest("msge"), ["message"]);
        assert_eq!(closest("wdth"), ["width"]);
        assert_eq!(["vs", "ms", "alues_", "mxg"].map(|word| closest(word).contains(&"message")), [false; 4]);
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
