//! Output fits narrow terminals.

use serde_json::json;

use ropeway_testing::Script;

use crate::temp_home::{TempHome, entry, having};
use crate::terminal::Terminal;

#[test]
fn health_fits_terminals_of_80_and_40_and_20_columns() {
    let temp_home = TempHome::with(&[
        entry("demo", &Script::default()),
        having(entry("with-a-name-that-is-rather-long", &Script::default()), json!({"tools": ["none"]})),
        json!({"alias": "gone", "command": "/no/such/program"}),
        json!({"alias": "skipped", "command": "x", "env": {"A": "${ONE_VARIABLE}", "B": "${ANOTHER_ONE}"}}),
        json!({"alias": "off", "command": "x", "enabled": false}),
    ]);
    for columns in [80, 40, 20] {
        let screen = Terminal { columns, coloured: false }.show(temp_home.ropeway(&["health"]));
        let is_whole_word = |line: &str| line.trim().split(' ').count() == 1;
        for line in screen.text.lines() {
            // Paths and variable names are not broken, so that they can be copied.
            let fits = line.chars().count() <= usize::from(columns);
            assert!(fits || is_whole_word(line), "{columns} columns: {line:?}\n{}", screen.text);
        }
        for words in ["SERVER", "STATE", "demo", "gone", "skipped"] {
            assert!(screen.text.contains(words), "{columns} columns: {words}\n{}", screen.text);
        }
        assert_eq!(screen.text.contains("PROTOCOL"), columns == 80, "{}", screen.text);
        assert_eq!(screen.text.contains("TOOLS"), columns > 20, "{}", screen.text);
    }
}
