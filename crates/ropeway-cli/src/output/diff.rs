//! The difference of two texts, for `--dry-run`.

/// Lines shown before and after a change.
const CONTEXT: usize = 3;

/// Formats the change from one text to another: removed lines with `-`, added lines with `+`, and a few lines around them.
///
/// All changes are one hunk, which fits insertions and removals at one place.
pub(crate) fn unified(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (removed, added) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    if removed.is_empty() && added.is_empty() {
        return String::new();
    }
    let first = start.saturating_sub(CONTEXT);
    let last = (old.len() - end + CONTEXT).min(old.len());
    let line = |sign: char| move |line: &&str| format!("{sign}{line}\n");
    let (around, behind) = (&old[first..start], &old[old.len() - end..last]);
    let length = |changed: usize| around.len() + changed + behind.len();
    let (old_range, new_range) = (range(first, length(removed.len())), range(first, length(added.len())));
    let mut text = format!("@@ -{old_range} +{new_range} @@\n");
    text.extend(around.iter().map(line(' ')));
    text.extend(removed.iter().map(line('-')));
    text.extend(added.iter().map(line('+')));
    text.extend(behind.iter().map(line(' ')));
    text
}

/// Formats the lines of a hunk. `patch` expects the line before an empty range.
fn range(first: usize, length: usize) -> String {
    let start = if length == 0 { first } else { first + 1 };
    format!("{start},{length}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_the_lines_around_it() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n";
        let after = "1\n2\n3\n4\nfive\n5b\n6\n7\n8\n";
        assert_eq!(unified(before, after), "@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+5b\n 6\n 7\n 8\n");
        assert_eq!(unified("", "a\n"), "@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(unified("a\n", ""), "@@ -1,1 +0,0 @@\n-a\n");
        assert_eq!(unified("a\n", "a\n"), "");
    }
}
