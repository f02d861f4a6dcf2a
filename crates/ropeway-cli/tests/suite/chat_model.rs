//! Which model `ropeway chat` talks to, and what it says when that one does not answer.

use ropeway::testing::ModelAnswer;
use serde_json::json;

use crate::chat::Model;

#[test]
fn what_a_provider_refuses_is_not_explained_by_the_server() {
    let talkative = format!("echo a word of the server >&2; exec {} demo-server", env!("CARGO_BIN_EXE_ropeway"));
    let server = json!({"alias": "only", "command": "sh", "args": ["-c", talkative]});
    for (status, exit, message) in [(401, 4, "no such key"), (500, 3, "out of order")] {
        let refusal = ModelAnswer::json(status, &json!({"error": {"message": message}}));
        let model = Model::answering([refusal.clone(), refusal.clone(), refusal]);
        model.place.configure(std::slice::from_ref(&server));
        let run = model.chat(&["-p", "hi"]).run().expect(exit);
        assert!(run.stderr.contains(message), "{}", run.stderr);
        for word in ["the server said", "doctor", "only", "bearer"] {
            assert!(!run.stderr.contains(word), "{word}: {}", run.stderr);
        }
    }
}
