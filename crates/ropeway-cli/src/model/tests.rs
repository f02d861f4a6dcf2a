//! Tests of the choice of a model.

use std::net::TcpListener;
use std::path::Path;

use clap::Parser as _;
use ropeway_config::{ChatSettings, Config, ProviderName, Secrets};
use ropeway_core::message::Dialect;
use ropeway_testing::{ModelAnswer, ModelServer};
use serde_json::json;

use super::args::ModelArgs;
use super::choose::choose;
use super::environment::Environment;
use super::local::LocalPort;
use crate::failure::{Exit, Failure};

/// A command that has only these options.
#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    model: ModelArgs,
}

/// The compared parts of a choice: dialect, URL, key, model and reason.
type Selection = (Dialect, String, Option<String>, String, String);

/// The options of a line.
fn line(words: &str) -> ModelArgs {
    Line::try_parse_from(format!("ropeway {words}").split_whitespace()).expect("a line").model
}

/// The chat of a file.
fn file(chat: &str) -> Option<ChatSettings> {
    let text = format!("servers: []\nchat: {chat}\n");
    Config::parse(&text, "nowhere/ropeway.yaml".as_ref(), &Secrets::none()).expect("a file").chat
}

/// Returns an unused port.
pub(super) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Starts a server with this response, and returns its port.
pub(super) async fn server(answer: ModelAnswer) -> (ModelServer, u16) {
    let server = ModelServer::start([answer]).await.expect("a server");
    let port = server.url().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    (server, port)
}

/// A list of models.
fn list(models: &[&str]) -> ModelAnswer {
    let models: Vec<_> = models.iter().map(|model| json!({"id": model})).collect();
    ModelAnswer::json(200, &json!({"object": "list", "data": models}))
}

/// Chooses with these variables and local ports, for the user's own file.
async fn choice(
    words: &str,
    chat: Option<&ChatSettings>,
    variables: &[(&str, &str)],
    locals: &[LocalPort],
) -> Result<Selection, Failure> {
    choice_in(true, words, chat, variables, locals).await
}

/// Like [`choice`]; the file may belong to a project.
async fn choice_in(
    is_own: bool,
    words: &str,
    chat: Option<&ChatSettings>,
    variables: &[(&str, &str)],
    locals: &[LocalPort],
) -> Result<Selection, Failure> {
    let variable =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let choice = choose(
        &line(words),
        chat,
        &Environment { variable: &variable, local_ports: locals, file: Some(Path::new("a.yaml")), is_own },
    )
    .await?;
    let key = choice.provider.key.map(|key| key.expose().to_owned());
    Ok((choice.provider.dialect, choice.provider.base_url, key, choice.model, choice.why))
}

fn selection(dialect: Dialect, url: &str, key: Option<&str>, model: &str, why: &str) -> Selection {
    (dialect, url.to_owned(), key.map(str::to_owned), model.to_owned(), why.to_owned())
}

/// Returns the exit code and the printed text of a failure.
fn printed(failure: &Failure) -> (Exit, String) {
    (failure.exit(), anstream::adapter::strip_str(&failure.render()).to_string())
}

async fn failures(words: &str, chat: Option<&str>, variables: &[(&str, &str)], locals: &[LocalPort]) -> (Exit, String) {
    let chat = chat.and_then(file);
    let chosen = choice(words, chat.as_ref(), variables, locals).await;
    printed(&chosen.expect_err("no model"))
}

const ANTHROPIC: &str = "https://api.anthropic.com";
const OPENAI: &str = "https://api.openai.com/v1";
const GEMINI: &str = "https://generativelanguage.googleapis.com";

/// A key of every provider.
const KEYS: [(&str, &str); 8] = [
    ("ANTHROPIC_API_KEY", "key-a"),
    ("OPENAI_API_KEY", "key-o"),
    ("GEMINI_API_KEY", "key-g"),
    ("OPENROUTER_API_KEY", "key-r"),
    ("MISTRAL_API_KEY", "key-m"),
    ("GROQ_API_KEY", "key-q"),
    ("DEEPSEEK_API_KEY", "key-d"),
    ("XAI_API_KEY", "key-x"),
];

#[tokio::test]
async fn options_win_over_the_file_and_the_file_over_keys() {
    use Dialect::{Anthropic, Chat, Gemini, Responses};
    let whole = "{provider: anthropic, base_url: 'http://f/v1', key: key-f, model: m-f}";
    let given = |name: &str| format!("from `--provider {name}`");
    let file_says = "from the configuration";
    let cases: [(&str, Option<&str>, Selection); 21] = [
        // Keys alone, and keys with a model of a known provider.
        ("", None, selection(Anthropic, ANTHROPIC, Some("key-a"), "claude-sonnet-5-5", "ANTHROPIC_API_KEY is set")),
        ("--model x", None, selection(Anthropic, ANTHROPIC, Some("key-a"), "x", "ANTHROPIC_API_KEY is set")),
        ("-m gpt-6", None, selection(Responses, OPENAI, Some("key-o"), "gpt-6", "OPENAI_API_KEY is set")),
        ("-m gemini-9", None, selection(Gemini, GEMINI, Some("key-g"), "gemini-9", "GEMINI_API_KEY is set")),
        (
            "-m google/gemini-9",
            None,
            selection(
                Chat,
                "https://openrouter.ai/api/v1",
                Some("key-r"),
                "google/gemini-9",
                "OPENROUTER_API_KEY is set",
            ),
        ),
        ("-m grok-9", None, selection(Chat, "https://api.x.ai/v1", Some("key-x"), "grok-9", "XAI_API_KEY is set")),
        (
            "",
            Some("{model: grok-9}"),
            selection(Chat, "https://api.x.ai/v1", Some("key-x"), "grok-9", "XAI_API_KEY is set"),
        ),
        // A partial and a complete file.
        ("", Some("{provider: google}"), selection(Gemini, GEMINI, Some("key-g"), "gemini-3.8-flash", file_says)),
        (
            "",
            Some("{provider: openai, key: key-f}"),
            selection(Responses, OPENAI, Some("key-f"), "gpt-6-sol", file_says),
        ),
        ("", Some("{base_url: 'http://f/v1', model: m-f}"), selection(Chat, "http://f/v1", None, "m-f", file_says)),
        ("", Some(whole), selection(Anthropic, "http://f/v1", Some("key-f"), "m-f", file_says)),
        ("-m m", Some(whole), selection(Anthropic, "http://f/v1", Some("key-f"), "m", file_says)),
        ("--key-env XAI_API_KEY", Some(whole), selection(Anthropic, "http://f/v1", Some("key-x"), "m-f", file_says)),
        // Options; the file's settings for another endpoint do not apply.
        (
            "--provider claude",
            Some(whole),
            selection(Anthropic, "http://f/v1", Some("key-f"), "m-f", &given("anthropic")),
        ),
        (
            "--provider gemini",
            Some(whole),
            selection(Gemini, GEMINI, Some("key-g"), "gemini-3.8-flash", &given("gemini")),
        ),
        ("--base-url http://l/v1 -m m", Some(whole), selection(Chat, "http://l/v1", None, "m", "from `--base-url`")),
        (
            "--provider deepseek --base-url http://l/v1 -m m",
            Some(whole),
            selection(Chat, "http://l/v1", Some("key-d"), "m", &given("deepseek")),
        ),
        (
            "--base-url http://l/v1 -m m --key-env GROQ_API_KEY",
            None,
            selection(Chat, "http://l/v1", Some("key-q"), "m", "from `--base-url`"),
        ),
        (
            "--provider openai",
            Some("{model: m-f}"),
            selection(Responses, OPENAI, Some("key-o"), "m-f", &given("openai")),
        ),
        ("--provider chat", None, selection(Chat, OPENAI, Some("key-o"), "gpt-6-sol", &given("chat"))),
        (
            "--key-env MISTRAL_API_KEY",
            None,
            selection(Chat, "https://api.mistral.ai/v1", Some("key-m"), "mistral-medium-latest", "from `--key-env`"),
        ),
    ];
    for (words, chat, expected) in cases {
        let chat_settings = chat.and_then(file);
        let chosen = choice(words, chat_settings.as_ref(), &KEYS, &[]).await;
        assert_eq!(chosen.map_err(|failure| printed(&failure)), Ok(expected), "{words} {chat:?}");
    }
}

#[tokio::test]
async fn keys_are_tried_in_order() {
    let mut left = KEYS.to_vec();
    let mut found = Vec::new();
    while !left.is_empty() {
        let (.., why) = choice("--model m", None, &left, &[]).await.expect("a model");
        let variable = why.strip_suffix(" is set").expect("a variable").to_owned();
        left.retain(|(name, _)| *name != variable);
        found.push(variable);
    }
    assert_eq!(found, KEYS.map(|(name, _)| name));
}

#[tokio::test]
async fn alternative_key_variables_are_used() {
    let token = [("ANTHROPIC_API_KEY", " "), ("ANTHROPIC_AUTH_TOKEN", "tok"), ("ANTHROPIC_BASE_URL", "http://p")];
    let variable = |name: &str| token.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let environment = Environment { variable: &variable, local_ports: &[], file: None, is_own: true };
    let choice = choose(&line("-m m"), None, &environment).await.expect("a model");
    assert_eq!(
        (choice.provider.base_url.as_str(), choice.provider.key_header, choice.why.as_str()),
        ("http://p", None, "ANTHROPIC_AUTH_TOKEN is set")
    );
    // A named token keeps its header, and other variables use the header of the dialect.
    for (words, header) in [
        ("-m m --provider claude --key-env ANTHROPIC_AUTH_TOKEN", None),
        ("-m m --key-env ANTHROPIC_AUTH_TOKEN", None),
        ("-m m --provider claude --key-env ANTHROPIC_BASE_URL", Some("x-api-key")),
    ] {
        let choice = choose(&line(words), None, &environment).await;
        assert_eq!(choice.expect("a model").provider.key_header.as_deref(), header, "{words}");
    }
    let google = [("GOOGLE_API_KEY", "k"), ("GOOGLE_GEMINI_BASE_URL", "http://p")];
    assert_eq!(
        self::choice("-m m", None, &google, &[]).await.expect("a model"),
        selection(Dialect::Gemini, "http://p", Some("k"), "m", "GOOGLE_API_KEY is set")
    );
    // Of two keys, the reason names the one that is sent.
    let both = [("GEMINI_API_KEY", "other"), ("GOOGLE_API_KEY", "k")];
    assert_eq!(
        self::choice("-m m", None, &both, &[]).await.expect("a model"),
        selection(Dialect::Gemini, GEMINI, Some("k"), "m", "GOOGLE_API_KEY is set")
    );
}

#[tokio::test]
async fn a_custom_openai_url_uses_chat_completions() {
    let (server, port) = server(list(&["text-embed-1", "mine"])).await;
    let url = format!("http://127.0.0.1:{port}/v1");
    let variables = [("OPENAI_BASE_URL", url.as_str())];
    assert_eq!(
        choice("", None, &variables, &[]).await.expect("a model"),
        selection(Dialect::Chat, &url, None, "mine", "OPENAI_BASE_URL is set")
    );
    let named = choice("--provider openai -m m", None, &variables, &[]).await.expect("a model");
    assert_eq!(named, selection(Dialect::Chat, &url, None, "m", "from `--provider openai`"));
    // Provider and URL together select the provider's own dialect.
    let words = "--provider openai --base-url http://l/v1 -m m";
    let named = choice(words, None, &variables, &[]).await.expect("a model");
    assert_eq!(named, selection(Dialect::Responses, "http://l/v1", None, "m", "from `--provider openai`"));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_url_alone_uses_the_first_model_of_the_server() {
    let (server, port) = server(list(&["one", "two"])).await;
    let url = format!("http://127.0.0.1:{port}/v1");
    let chosen = choice(&format!("--base-url {url} --key-env K"), None, &[("K", "key-k")], &[]).await;
    assert_eq!(chosen.expect("a model"), selection(Dialect::Chat, &url, Some("key-k"), "one", "from `--base-url`"));
    let asked = &server.requests()[0];
    assert_eq!((asked.path.as_str(), asked.header("authorization")), ("/v1/models", Some("Bearer key-k")));
}

#[tokio::test]
async fn without_a_key_a_local_server_is_found() {
    let silent = LocalPort { name: ProviderName::Ollama, port: free_port() };
    let (_first, port) = server(list(&["embedder", "qwen:latest"])).await;
    let first = LocalPort { name: ProviderName::LmStudio, port };
    let (_second, port) = server(list(&["llama"])).await;
    let second = LocalPort { name: ProviderName::LlamaCpp, port };
    let locals = [silent, first, second];
    let at = |local: LocalPort, model: &str| {
        let why = format!("{} answers on port {}", local.title(), local.port);
        selection(Dialect::Chat, &format!("http://127.0.0.1:{}/v1", local.port), None, model, &why)
    };
    assert_eq!(choice("", None, &[("OPENAI_API_KEY", "")], &locals).await.expect("a model"), at(first, "qwen:latest"));
    for (wanted, local, model) in [("llama", 1, "llama"), ("qwen", 0, "qwen:latest")] {
        let (_first, port) = server(list(&["embedder", "qwen:latest"])).await;
        let first = LocalPort { port, ..first };
        let (_second, port) = server(list(&["llama"])).await;
        let locals = [first, LocalPort { port, ..second }];
        let chosen = choice(&format!("--model {wanted}"), None, &[], &locals).await.expect("a model");
        assert_eq!(chosen, at(locals[local], model));
    }
}

#[tokio::test]
async fn a_model_of_no_known_provider_is_searched_locally_first() {
    for (wanted, expected) in [
        ("qwen", "Ollama answers on port"),
        ("other", "ANTHROPIC_API_KEY is set"),
        ("claude-x", "ANTHROPIC_API_KEY is set"),
    ] {
        let (server, port) = server(list(&["qwen:latest", "claude-x"])).await;
        let local = LocalPort { name: ProviderName::Ollama, port };
        let words = format!("--model {wanted}");
        let (.., why) = choice(&words, None, &KEYS[..1], &[local]).await.expect("a model");
        assert!(why.starts_with(expected), "{wanted}: {why}");
        assert_eq!(server.requests().len(), usize::from(wanted != "claude-x"), "{wanted}");
    }
    // A custom endpoint may have models of any name.
    let (_server, port) = server(list(&["qwen"])).await;
    let local = LocalPort { name: ProviderName::Ollama, port };
    let own = [KEYS[0], ("OPENAI_BASE_URL", "http://l/v1")];
    let chosen = choice("--model qwen", None, &own, &[local]).await.expect("a model");
    assert_eq!(chosen, selection(Dialect::Chat, "http://l/v1", None, "qwen", "OPENAI_BASE_URL is set"));
}

#[tokio::test]
async fn equivalent_urls_are_recognized() {
    let file = file("{base_url: 'http://f/v1', key: key-f, model: m-f}");
    for (url, key) in [("http://f/v1/", Some("key-f")), ("HTTP://F:80/v1", Some("key-f")), ("http://f/v2", None)] {
        let words = format!("--base-url {url} -m m");
        let chosen = choice(&words, file.as_ref(), &[], &[]).await.expect("a model");
        assert_eq!(chosen, selection(Dialect::Chat, url, key, "m", "from `--base-url`"));
    }
}

#[tokio::test]
async fn a_key_is_trimmed_and_must_be_one_line() {
    let (_, _, key, ..) = choice("", None, &[("ANTHROPIC_API_KEY", " key-a\r\n")], &[]).await.expect("a model");
    assert_eq!(key.as_deref(), Some("key-a"));
    let lines = [("ANTHROPIC_API_KEY", "one\ntwo")];
    for words in ["", "--provider claude", "--key-env ANTHROPIC_API_KEY"] {
        let expected = "error: API key in `ANTHROPIC_API_KEY` has several lines\n".to_owned();
        assert_eq!(failures(words, None, &lines, &[]).await, (Exit::Usage, expected), "{words}");
    }
}

#[tokio::test]
async fn the_choice_names_the_provider_and_its_host() {
    let variable = |name: &str| (name == "ANTHROPIC_API_KEY").then(|| "key-a".to_owned());
    let local = LocalPort { name: ProviderName::Ollama, port: 7 };
    let environment = Environment { variable: &variable, local_ports: &[local], file: None, is_own: true };
    for (words, place) in [
        ("-m claude-x", "Anthropic at api.anthropic.com"),
        ("-m m --provider claude --base-url https://ada:pass@h:81/v1", "h:81"),
        ("-m m --provider ollama", "Ollama at 127.0.0.1:7"),
        ("-m m --base-url http://l/v1?token=t", "l"),
    ] {
        assert_eq!(choose(&line(words), None, &environment).await.expect("a model").place, place, "{words}");
    }
}

#[tokio::test]
async fn a_local_server_can_be_named() {
    let (_server, port) = server(list(&["qwen"])).await;
    let local = LocalPort { name: ProviderName::Ollama, port };
    let chosen = choice("--provider ollama", None, &KEYS, &[local]).await.expect("a model");
    let url = format!("http://127.0.0.1:{port}/v1");
    assert_eq!(chosen, selection(Dialect::Chat, &url, None, "qwen", "from `--provider ollama`"));
}

#[tokio::test]
async fn without_a_model_the_error_lists_what_to_set() {
    let closed = [ProviderName::Ollama, ProviderName::Vllm].map(|name| LocalPort { name, port: free_port() });
    let expected = format!(
        "error: no model found: no API key is set, and no local server was found
  for Anthropic: export ANTHROPIC_API_KEY=…
  for OpenAI: export OPENAI_API_KEY=…
  for Gemini: export GEMINI_API_KEY=…
  for OpenRouter: export OPENROUTER_API_KEY=…
  for Mistral: export MISTRAL_API_KEY=…
  for Groq: export GROQ_API_KEY=…
  for DeepSeek: export DEEPSEEK_API_KEY=…
  for xAI: export XAI_API_KEY=…
  for a local model: start its server (Ollama on port {}, vLLM on port {})
  for any other: --base-url http://127.0.0.1:8080/v1 --model NAME, and --key-env VARIABLE if it needs a key
  to save the choice: `chat: {{provider: anthropic, model: NAME, key: \"${{MY_KEY}}\"}}` in ropeway.yaml
",
        closed[0].port, closed[1].port
    );
    assert_eq!(failures("", None, &[], &closed).await, (Exit::Usage, expected));
}

#[tokio::test]
async fn an_unknown_model_lists_the_models_of_local_servers() {
    let (_empty, port) = server(list(&[])).await;
    let empty = LocalPort { name: ProviderName::Ollama, port };
    let (_other, port) = server(list(&["a", "b"])).await;
    let other = LocalPort { name: ProviderName::Vllm, port };
    let (exit, text) = failures("--model x", None, &[], &[empty, other]).await;
    let first: Vec<&str> = text.lines().take(3).collect();
    let expected = [
        "error: model `x` not found: no API key is set, and no local server has it".to_owned(),
        format!("  Ollama on port {} has no models; load one first", empty.port),
        format!("  vLLM on port {} has: a, b", other.port),
    ];
    assert_eq!((exit, first), (Exit::Usage, expected.iter().map(String::as_str).collect()));
}

#[tokio::test]
async fn a_missing_key_is_named() {
    let hint =
        "  or name another variable with `--key-env`, or with `key: ${NAME}` under `chat` in the configuration\n";
    let cases = [
        (
            "--provider claude",
            None,
            format!(
                "error: Anthropic requires an API key, but `ANTHROPIC_API_KEY` and `ANTHROPIC_AUTH_TOKEN` are not set\n  set it: export ANTHROPIC_API_KEY=…\n{hint}"
            ),
        ),
        (
            "",
            Some("{provider: groq, key: '${NO_SUCH}'}"),
            "error: API key of the model is not set: `NO_SUCH` is not set
  required by `chat.key` in `a.yaml`
  set it: export NO_SUCH=…
  or name another variable with `--key-env`
"
            .to_owned(),
        ),
        (
            "--base-url http://l/v1 --key-env MINE",
            None,
            "error: environment variable `MINE` is not set\n  set it: export MINE=…\n".to_owned(),
        ),
    ];
    for (words, chat, expected) in cases {
        assert_eq!(failures(words, chat, &[], &[]).await, (Exit::NeedsAuth, expected), "{words}");
    }
    let expected =
        "error: unknown provider for the API key in `MINE`\n  name the provider with `--provider` or `--base-url`\n";
    assert_eq!(failures("--key-env MINE", None, &[("MINE", "k")], &[]).await, (Exit::Usage, expected.to_owned()));
}

#[tokio::test]
async fn settings_with_unset_variables_are_not_guessed() {
    let base_url_not_set = "error: base URL of the model is not set: `HOST` is not set
  required by `chat.base_url` in `a.yaml`
  set it: export HOST=…
  or use `--base-url` or `--provider`
";
    let homeless = "{provider: openai, base_url: 'https://${HOST}/v1', key: key-f, model: m-f}";
    for words in ["", "-m m", "--key-env OPENAI_API_KEY"] {
        assert_eq!(
            failures(words, Some(homeless), &KEYS, &[]).await,
            (Exit::Usage, base_url_not_set.to_owned()),
            "{words}"
        );
    }
    let keyless = "error: API key of the model is not set: `MINE` is not set
  required by `chat.key` in `a.yaml`
  set it: export MINE=…
  or name another variable with `--key-env`
";
    for chat in ["{provider: openai, key: '${MINE}'}", "{key: '${MINE}'}", "{base_url: 'http://f/v1', key: '${MINE}'}"]
    {
        assert_eq!(failures("-m m", Some(chat), &KEYS, &[]).await, (Exit::NeedsAuth, keyless.to_owned()), "{chat}");
    }
    // Options bypass unset variables of the file, and none of its settings for another endpoint apply.
    let openai = |why: &str| selection(Dialect::Responses, OPENAI, Some("key-o"), "m", why);
    let keyless = "{provider: openai, key: '${MINE}'}";
    for (words, chat, expected) in [
        ("-m m --provider openai", homeless, openai("from `--provider openai`")),
        ("-m m --key-env OPENAI_API_KEY", keyless, openai("from the configuration")),
        ("-m m --base-url http://l", keyless, selection(Dialect::Chat, "http://l", None, "m", "from `--base-url`")),
    ] {
        let chosen = choice(words, file(chat).as_ref(), &KEYS, &[]).await;
        assert_eq!(chosen.map_err(|failure| printed(&failure)), Ok(expected), "{words}");
    }
}

#[tokio::test]
async fn an_invalid_url_is_reported_without_credentials() {
    let (exit, text) = failures("--base-url ftp://l/v1 -m m", None, &[], &[]).await;
    assert_eq!(exit, Exit::Usage);
    assert_eq!(
        text,
        "error: invalid URL `ftp://l/v1`\n  caused by: unsupported scheme `ftp`: expected http or https\n"
    );
    let (_server, port) = server(ModelAnswer::json(404, &json!({"error": "no such page"}))).await;
    let words = format!("--base-url http://ada:pass-w0rd@127.0.0.1:{port}/?key=t0ken-t0ken");
    let expected = format!(
        "error: could not list the models of `http://127.0.0.1:{port}/`
  caused by: the provider returned HTTP 404: no such page
  most servers expect `/v1` at the end of the URL
  or name a model with `--model`
"
    );
    assert_eq!(failures(&words, None, &[], &[]).await, (Exit::Usage, expected));
    let (_empty, port) = server(list(&["embed"])).await;
    let expected =
        format!("error: no models at `http://127.0.0.1:{port}/v1`\n  name an unlisted model with `--model`\n");
    assert_eq!(
        failures(&format!("--base-url http://127.0.0.1:{port}/v1"), None, &[], &[]).await,
        (Exit::Usage, expected)
    );
}

#[test]
fn a_mistyped_provider_gets_a_suggestion() {
    let error = Line::try_parse_from(["ropeway", "--provider", "antropic"]).expect_err("no provider");
    let text = error.to_string();
    assert!(text.contains("invalid value 'antropic' for '--provider <NAME>'"), "{text}");
    assert!(text.contains("a similar value exists: 'anthropic'"), "{text}");
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn a_provider_without_a_default_model_lists_its_models() {
    let models: Vec<String> = (1..=14).map(|number| format!("m{number}")).collect();
    let failure = super::failures::model_required(super::vendor::vendor(ProviderName::Groq), &models);
    let expected = "error: no default model for Groq; name one with `--model`\n  available models: m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12 and 2 more\n";
    assert_eq!(printed(&failure), (Exit::Usage, expected.to_owned()));
}

#[tokio::test]
async fn environment_keys_are_not_sent_to_urls_of_project_files() {
    for (provider, variable) in [
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("openai", "OPENAI_API_KEY"),
        ("gemini", "GEMINI_API_KEY"),
        ("openrouter", "OPENROUTER_API_KEY"),
    ] {
        for url in [
            "http://evil.example/v1",
            "https://evil.example",
            "http://api.anthropic.com",
            "https://api.openai.com.evil.example",
        ] {
            let chat = file(&format!("{{provider: {provider}, base_url: '{url}', model: m}}"));
            for words in ["", "--model m", "-m other"] {
                let failure = choice_in(false, words, chat.as_ref(), &KEYS, &[]).await.expect_err("no key");
                let (exit, printed) = printed(&failure);
                assert_eq!(exit, Exit::NeedsAuth);
                let words = format!("add `key: ${{{variable}}}` under `chat` in `a.yaml`");
                assert!(printed.contains(&words) && printed.contains("--base-url http"), "{printed}");
            }
            // Without a key nothing is withheld, and a named key is sent.
            let (_, place, key, ..) = choice_in(false, "", chat.as_ref(), &[], &[]).await.expect("a model");
            assert_eq!((place.as_str(), key), (url, None));
            for words in [format!("--provider {provider} --base-url {url}"), format!("--key-env {variable}")] {
                let (_, place, key, ..) = choice_in(false, &words, chat.as_ref(), &KEYS, &[]).await.expect("a model");
                assert!(place == url && key.is_some(), "{words}");
            }
            let (.., key, _, _) = choice_in(true, "", chat.as_ref(), &KEYS, &[]).await.expect("a model");
            assert!(key.is_some());
        }
    }
    let named = file("{provider: anthropic, base_url: 'https://evil.example', key: named, model: m}");
    let (_, _, key, ..) = choice_in(false, "", named.as_ref(), &KEYS, &[]).await.expect("a model");
    assert_eq!(key.as_deref(), Some("named"));
}

#[tokio::test]
async fn a_project_file_may_use_keys_for_the_vendors_own_hosts() {
    let key = async |chat: &str, variables: &[(&str, &str)]| {
        choice_in(false, "-m m", file(chat).as_ref(), variables, &[]).await.expect("a model").2
    };
    for (chat, expected) in [
        ("{provider: anthropic}", "key-a"),
        ("{provider: anthropic, base_url: 'https://api.anthropic.com/v1/'}", "key-a"),
        ("{provider: openai, base_url: 'https://eu.api.openai.com/v1'}", "key-o"),
        ("{provider: gemini, base_url: 'https://generativelanguage.googleapis.com:443'}", "key-g"),
        ("{provider: groq, base_url: 'https://api.groq.com/openai/v2'}", "key-q"),
    ] {
        assert_eq!(key(chat, &KEYS).await.as_deref(), Some(expected), "{chat}");
    }
    for host in ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.8.9.1"] {
        assert_eq!(key(&format!("{{provider: anthropic, base_url: 'http://{host}'}}"), &KEYS).await, None, "{host}");
    }
    // A file may repeat the base URL of the environment.
    let variables = [("ANTHROPIC_API_KEY", "key-a"), ("ANTHROPIC_BASE_URL", "https://gate.example/")];
    let chat = "{provider: anthropic, base_url: 'https://gate.example'}";
    assert_eq!(key(chat, &variables).await.as_deref(), Some("key-a"));
}
