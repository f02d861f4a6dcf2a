//! The choice of a model in `ropeway chat`, and its errors.

use ropeway_testing::{ModelAnswer, ScriptedReply};
use serde_json::json;

use crate::chat::Model;

#[test]
fn a_refused_request_is_not_blamed_on_a_server() {
    let talkative = format!("echo a word of the server >&2; exec {} demo-server", env!("CARGO_BIN_EXE_ropeway"));
    let server = json!({"alias": "only", "command": "sh", "args": ["-c", talkative]});
    for (status, exit, message) in [(401, 4, "no such key"), (500, 3, "out of order")] {
        let refusal = ModelAnswer::json(status, &json!({"error": {"message": message}}));
        let model = Model::answering([refusal.clone(), refusal.clone(), refusal]);
        model.temp_home.configure(std::slice::from_ref(&server));
        let run = model.chat(&["-p", "hi"]).run().expect(exit);
        assert!(run.stderr.contains(message), "{}", run.stderr);
        for word in ["server output", "doctor", "only", "bearer"] {
            assert!(!run.stderr.contains(word), "{word}: {}", run.stderr);
        }
    }
}

#[test]
fn approval_rules_apply_without_a_base_url() {
    let model = Model::saying([ScriptedReply::text("ok")]);
    let file = "chat: {base_url: 'https://${NO_SUCH_HOST}/v1', system: Be kind., tools: {deny: ['*']}}\nservers: []\n";
    model.temp_home.write("ropeway.yaml", file);
    let lost = model.temp_home.run("chat -p hi").expect(2);
    assert!(
        lost.stderr.starts_with("error: base URL of the model is not set: `NO_SUCH_HOST` is not set\n"),
        "{}",
        lost.stderr
    );
    let run = model.chat(&["-p", "hi"]).run().expect(0);
    assert!(run.stderr.contains("ignored `chat.base_url`: secret `NO_SUCH_HOST` is not set\n"), "{}", run.stderr);
    let body = &model.server.bodies()[0];
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "Be kind."}));
}

#[test]
fn credentials_in_a_url_are_redacted_but_placeholder_keys_are_not() {
    let model = Model::saying([ScriptedReply::text("pass-w0rd and t0ken-t0ken, as ollama has it")]);
    let url = format!("{}/v1?token=t0ken-t0ken", model.server.url().replace("http://", "http://ada:pass-w0rd@"));
    let words = ["-p", "hi", "--base-url", &url, "--key-env", "PARROT_KEY", "--no-tools", "--model", "parrot"];
    let run = model.temp_home.ropeway(&[&["chat"], &words[..]].concat()).with(|command| {
        command.env("PARROT_KEY", "ollama");
    });
    assert_eq!(run.run().expect(0).stdout, "*** and ***, as ollama has it\n");
}

#[test]
fn an_unknown_model_suggests_the_list_of_models() {
    let missing = ModelAnswer::json(404, &json!({"error": {"message": "no model `parrot`"}}));
    let models = ModelAnswer::json(200, &json!({"object": "list", "data": [{"id": "jay"}, {"id": "mag\u{1b}[2Jpie"}]}));
    let model = Model::answering([missing, models.clone(), models]);
    let run = model.chat(&["-p", "hi", "--no-tools"]).run().expect(2);
    assert!(
        run.stderr.ends_with(
            "run `ropeway chat --models` to list the available models, and choose one with `--model NAME`\n"
        ),
        "{}",
        run.stderr
    );
    assert_eq!(model.chat(&["--models"]).run().expect(0).stdout, "jay\nmagpie\n");
    let listed: Vec<String> =
        serde_json::from_str(&model.chat(&["--models", "--json"]).run().expect(0).stdout).expect("JSON");
    assert_eq!(listed, ["jay", "mag\u{1b}[2Jpie"]);
}
