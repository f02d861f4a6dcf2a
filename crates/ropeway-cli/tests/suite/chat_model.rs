//! Which model `ropeway chat` talks to, and what it says when that one does not answer.

use ropeway::testing::{ModelAnswer, ScriptedReply};
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
        for word in ["server output", "doctor", "only", "bearer"] {
            assert!(!run.stderr.contains(word), "{word}: {}", run.stderr);
        }
    }
}

#[test]
fn the_rules_of_a_chat_hold_when_its_address_is_not_known() {
    let model = Model::saying([ScriptedReply::text("ok")]);
    let file = "chat: {base_url: 'https://${NO_SUCH_HOST}/v1', system: Be kind., tools: {deny: ['*']}}\nservers: []\n";
    model.place.write("ropeway.yaml", file);
    let lost = model.place.run("chat -p hi").expect(2);
    assert!(
        lost.stderr.starts_with("error: it is not known where the model is: `NO_SUCH_HOST` is not set\n"),
        "{}",
        lost.stderr
    );
    let run = model.chat(&["-p", "hi"]).run().expect(0);
    assert!(
        run.stderr.contains("it is not known where `chat` goes: secret `NO_SUCH_HOST` is not set\n"),
        "{}",
        run.stderr
    );
    let body = &model.server.bodies()[0];
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "Be kind."}));
}

#[test]
fn what_is_secret_in_an_address_is_hidden_and_a_word_that_stands_in_for_a_key_is_not() {
    let model = Model::saying([ScriptedReply::text("pass-w0rd and t0ken-t0ken, as ollama has it")]);
    let url = format!("{}/v1?token=t0ken-t0ken", model.server.url().replace("http://", "http://ada:pass-w0rd@"));
    let words = ["-p", "hi", "--base-url", &url, "--key-env", "PARROT_KEY", "--no-tools", "--model", "parrot"];
    let run = model.place.ropeway(&[&["chat"], &words[..]].concat()).with(|command| {
        command.env("PARROT_KEY", "ollama");
    });
    assert_eq!(run.run().expect(0).stdout, "*** and ***, as ollama has it\n");
}

#[test]
fn a_model_that_is_not_there_leads_to_the_list_of_those_that_are() {
    let missing = ModelAnswer::json(404, &json!({"error": {"message": "no model `parrot`"}}));
    let models = ModelAnswer::json(200, &json!({"object": "list", "data": [{"id": "jay"}, {"id": "mag\u{1b}[2Jpie"}]}));
    let model = Model::answering([missing, models.clone(), models]);
    let run = model.chat(&["-p", "hi", "--no-tools"]).run().expect(2);
    assert!(
        run.stderr.ends_with("`--models` lists those that there are, and `--model NAME` takes one\n"),
        "{}",
        run.stderr
    );
    assert_eq!(model.chat(&["--models"]).run().expect(0).stdout, "jay\nmagpie\n");
    let listed: Vec<String> =
        serde_json::from_str(&model.chat(&["--models", "--json"]).run().expect(0).stdout).expect("JSON");
    assert_eq!(listed, ["jay", "mag\u{1b}[2Jpie"]);
}
