//! Line diffs between two texts, for the question about a call.

/// Unchanged lines shown before and after a change.
const CONTEXT: usize = 3;

/// Maximum line pairs that are compared. Larger texts are shown as one replacement.
const MAX_PAIRS: usize = 4_000_000;

/// A line in a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiffLine<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
    /// Unchanged lines that are not shown.
    Hidden(usize),
}

/// Compares two texts. Lines far from any change are hidden. The empty line behind a final line break counts only if it is
/// a change.
pub(super) fn diff_lines<'a>(before: &'a str, after: &'a str) -> Vec<DiffLine<'a>> {
    hide_unchanged(diff_all_lines(before, after))
}

/// Compares two texts like [`diff_lines`], without hiding lines.
pub(super) fn diff_all_lines<'a>(before: &'a str, after: &'a str) -> Vec<DiffLine<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.split('\n').collect(), after.split('\n').collect());
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    let mut lines: Vec<DiffLine<'a>> = old[..start].iter().copied().map(DiffLine::Same).collect();
    lines.extend(changed_lines(&old[start..old.len() - end], &new[start..new.len() - end]));
    lines.extend(old[old.len() - end..].iter().copied().map(DiffLine::Same));
    lines.pop_if(|last| *last == DiffLine::Same("") && old.len() + new.len() > 2);
    lines
}

/// Compares lines by their longest common subsequence.
fn changed_lines<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<DiffLine<'a>> {
    let (height, width) = (old.len(), new.len());
    let removed = old.iter().copied().map(DiffLine::Removed);
    let added = new.iter().copied().map(DiffLine::Added);
    if height.saturating_mul(width) > MAX_PAIRS {
        return removed.chain(added).collect();
    }
    // `common[i * (width + 1) + j]` is the length for `old[i..]` and `new[j..]`.
    let mut common = vec![0_u32; (height + 1) * (width + 1)];
    let at = |i: usize, j: usize| i * (width + 1) + j;
    for i in (0..height).rev() {
        for j in (0..width).rev() {
            common[at(i, j)] = if old[i] == new[j] {
                common[at(i + 1, j + 1)] + 1
            } else {
                common[at(i + 1, j)].max(common[at(i, j + 1)])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    while i < height || j < width {
        if i < height && j < width && old[i] == new[j] {
            lines.push(DiffLine::Same(old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < height && (j == width || common[at(i + 1, j)] >= common[at(i, j + 1)]) {
            lines.push(DiffLine::Removed(old[i]));
            i += 1;
        } else {
            lines.push(DiffLine::Added(new[j]));
            j += 1;
        }
    }
    lines
}

fn hide_unchanged(lines: Vec<DiffLine<'_>>) -> Vec<DiffLine<'_>> {
    let mut is_near = vec![false; lines.len()];
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| !matches!(line, DiffLine::Same(_))) {
        let last = (at + CONTEXT).min(lines.len() - 1);
        is_near[at.saturating_sub(CONTEXT)..=last].fill(true);
    }
    let mut shown = Vec::new();
    for (line, is_near) in lines.into_iter().zip(is_near) {
        match (is_near, shown.last_mut()) {
            (true, _) => shown.push(line),
            (false, Some(DiffLine::Hidden(count))) => *count += 1,
            (false, _) => shown.push(DiffLine::Hidden(1)),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::DiffLine::{Added, Hidden, Removed, Same};
    use super::*;

    #[test]
    fn changes_are_shown_with_the_lines_around_them() {
        let before: String = (1..=20).map(|number| format!("{number}\n")).collect();
        let after = before.replace("10\n", "ten\n").replace("12\n", "");
        assert_eq!(
            diff_lines(&before, &after),
            [
                Hidden(6),
                Same("7"),
                Same("8"),
                Same("9"),
                Removed("10"),
                Added("ten"),
                Same("11"),
                Removed("12"),
                Same("13"),
                Same("14"),
                Same("15"),
                Hidden(5)
            ]
        );
        assert_eq!(diff_lines("a\nb", "a\nb"), [Hidden(2)]);
    }

    #[test]
    fn a_final_line_break_is_a_change() {
        assert_eq!(diff_lines("a", "a\n"), [Same("a"), Added("")]);
        assert_eq!(diff_lines("", "b"), [Removed(""), Added("b")]);
        assert_eq!(diff_lines("a\n", "b\n"), [Removed("a"), Added("b")]);
        assert_eq!(diff_lines("", "b\n"), [Added("b")]);
    }

    #[test]
    fn large_texts_are_one_replacement() {
        let text = |word: &str| (0..3000).map(|number| format!("{word} {number}\n")).collect::<String>();
        let (before, after) = (text("a"), text("b"));
        let lines = diff_lines(&before, &after);
        assert_eq!((lines[0], lines[3000], lines.len()), (Removed("a 0"), Added("b 0"), 6000));
    }
}
