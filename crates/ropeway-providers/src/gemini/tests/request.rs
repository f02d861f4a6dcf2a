//! Encoding of everything but the contents.

use serde_json::{Value, json};

use super::{NEW, OLD, body, encoded, settings, toolset};
use crate::{ChatRequest, ProviderErrorKind, ProviderSettings, Quirks, ReasoningEffort, ToolChoice, encode};
use ropeway_core::lowering::lower_output;
use ropeway_core::message::{Conversation, Dialect};

#[test]
fn the_url_names_the_model_for_every_base_url() {
    let conversation = Conversation::new().with("hi");
    let url = |base: &str, version: Option<&str>, model: &str| {
        let quirks = Quirks { gemini_version: version.map(str::to_owned), ..Quirks::default() };
        let settings = settings().with_base_url(base).with_quirks(quirks);
        encoded(&settings, &ChatRequest::new(model, &conversation)).request.url
    };
    let end = ":streamGenerateContent?alt=sse";
    let asked = [
        (url("https://g.test", None, "m"), "https://g.test/v1beta/models/m"),
        (url("https://g.test/", Some("v1"), "m"), "https://g.test/v1/models/m"),
        (url("https://g.test/v1", None, "m"), "https://g.test/v1/models/m"),
        (url("https://g.test/v1beta/", None, "m"), "https://g.test/v1beta/models/m"),
        (url("https://g.test/v1beta1", Some("v1"), "m"), "https://g.test/v1beta1/models/m"),
        (url("https://g.test/v1/gateway", None, "m"), "https://g.test/v1/gateway/v1beta/models/m"),
        (url("https://v1", None, "m"), "https://v1/v1beta/models/m"),
        (
            url("https://g.test/v1/projects/p/publishers/google", Some(""), "m"),
            "https://g.test/v1/projects/p/publishers/google/models/m",
        ),
        (url("https://g.test", None, "models/gemini-3-pro"), "https://g.test/v1beta/models/gemini-3-pro"),
        (url("https://g.test", None, "tunedModels/mine-1"), "https://g.test/v1beta/tunedModels/mine-1"),
        (url("https://g.test", None, "google/gemini-3-pro"), "https://g.test/v1beta/models/google%2Fgemini-3-pro"),
        (url("https://g.test", None, "../../x?key=1#ä"), "https://g.test/v1beta/models/..%2F..%2Fx%3Fkey%3D1%23%C3%A4"),
        (url("https://g.test", Some("../x"), "m"), "https://g.test/..%2Fx/models/m"),
    ];
    for (found, wanted) in asked {
        assert_eq!(found, format!("{wanted}{end}"));
    }
    assert_eq!(url("https://g.test/v1?k=1", None, "m"), format!("https://g.test/v1/models/m{end}&k=1"));
}

#[test]
fn the_key_is_in_a_header_and_nowhere_else() {
    let conversation = Conversation::new().with("hi");
    let settings = ProviderSettings::new(Dialect::Gemini).with_key("sesame");
    let request = encoded(&settings, &ChatRequest::new(NEW, &conversation)).request;
    let key: Vec<&str> =
        request.headers.iter().filter(|(_, value)| value.expose() == "sesame").map(|(name, _)| name.as_str()).collect();
    assert_eq!((request.method, key), ("POST", vec!["x-goog-api-key"]));
    assert!(!request.url.contains("sesame"));
}

#[test]
fn a_minimal_request_has_only_contents() {
    let conversation = Conversation::new().with("hi");
    let request = encoded(&settings(), &ChatRequest::new(NEW, &conversation));
    assert_eq!(body(&request), json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}));
    assert_eq!(request.warnings, Vec::<String>::new());
}

#[test]
fn request_settings_have_their_fields() {
    let conversation = Conversation::new().with_system("Be brief.").with("hi");
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let toolset = toolset();
    let mut request = ChatRequest::new(NEW, &conversation)
        .with_tools(&toolset)
        .with_max_tokens(9)
        .with_temperature(0.5)
        .with_effort(ReasoningEffort::Low)
        .with_output("answer", schema.clone());
    request.top_p = Some(0.25);
    request.stop_sequences = vec!["END".to_owned()];
    request.extra.insert("cachedContent".to_owned(), json!("cachedContents/1"));
    let mut found = body(&encoded(&settings(), &request));
    let tools = found["tools"].take();
    assert_eq!(tools[0]["functionDeclarations"].as_array().map(Vec::len), Some(2));
    assert_eq!(tools.as_array().map(Vec::len), Some(1));
    assert_eq!(
        found,
        json!({
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "generationConfig": {
                "maxOutputTokens": 9,
                "temperature": 0.5,
                "topP": 0.25,
                "stopSequences": ["END"],
                "thinkingConfig": {"includeThoughts": true, "thinkingLevel": "LOW"},
                "responseMimeType": "application/json",
                "responseJsonSchema": schema
            },
            "cachedContent": "cachedContents/1",
            "tools": null
        })
    );
}

#[test]
fn extra_generation_config_is_merged() {
    let conversation = Conversation::new().with("hi");
    let mut request = ChatRequest::new(NEW, &conversation).with_max_tokens(9).with_effort(ReasoningEffort::High);
    request.extra.insert("generationConfig".to_owned(), json!({"topK": 40, "maxOutputTokens": 7}));
    request.extra.insert("contents".to_owned(), json!([]));
    let mut found = body(&encoded(&settings(), &request));
    let thinking = json!({"includeThoughts": true, "thinkingLevel": "HIGH"});
    assert_eq!(found["generationConfig"].take(), json!({"maxOutputTokens": 7, "thinkingConfig": thinking, "topK": 40}));
    assert_eq!(found, json!({"generationConfig": null, "contents": []}));

    request.extra.insert("generationConfig".to_owned(), Value::Null);
    assert_eq!(body(&encoded(&settings(), &request)), json!({"generationConfig": null, "contents": []}));
}

#[test]
fn an_effort_is_a_level_or_a_budget() {
    let conversation = Conversation::new().with("hi");
    let thinking = |model: &str, effort: ReasoningEffort| {
        let request = encoded(&settings(), &ChatRequest::new(model, &conversation).with_effort(effort));
        (body(&request)["generationConfig"]["thinkingConfig"].clone(), request.warnings)
    };
    let level = |level: &str| (json!({"includeThoughts": true, "thinkingLevel": level}), vec![]);
    let budget = |budget: u32| (json!({"includeThoughts": true, "thinkingBudget": budget}), vec![]);
    let quiet = |config: Value| (config, Vec::<String>::new());
    for model in [NEW, "gemini-3.1-pro", "gemini-4-argon", "gemini-flash-latest", "my-alias", "gemini-12-pro"] {
        assert_eq!(thinking(model, ReasoningEffort::Off), quiet(json!({"thinkingLevel": "LOW"})), "{model}");
        assert_eq!(thinking(model, ReasoningEffort::Minimal), level("LOW"), "{model}");
        assert_eq!(thinking(model, ReasoningEffort::Low), level("LOW"), "{model}");
        assert_eq!(thinking(model, ReasoningEffort::Medium), level("MEDIUM"), "{model}");
        assert_eq!(thinking(model, ReasoningEffort::High), level("HIGH"), "{model}");
        assert_eq!(thinking(model, ReasoningEffort::Max), level("HIGH"), "{model}");
    }
    assert_eq!(thinking("gemini-3-flash", ReasoningEffort::Minimal), level("MINIMAL"));
    assert_eq!(thinking("gemini-3.1-flash-lite", ReasoningEffort::Off), quiet(json!({"thinkingLevel": "MINIMAL"})));
    for model in [OLD, "models/gemini-2.5-flash-lite", "google/gemini-2.5-flash"] {
        assert_eq!(thinking(model, ReasoningEffort::Off), quiet(json!({"thinkingBudget": 0})), "{model}");
        assert_eq!(thinking(model, ReasoningEffort::Minimal), budget(512), "{model}");
        assert_eq!(thinking(model, ReasoningEffort::Low), budget(1024), "{model}");
        assert_eq!(thinking(model, ReasoningEffort::Medium), budget(8192), "{model}");
        assert_eq!(thinking(model, ReasoningEffort::Max), budget(24_576), "{model}");
    }
    assert_eq!(thinking("gemini-2.5-pro", ReasoningEffort::Off), quiet(json!({"thinkingBudget": 128})));
    assert_eq!(thinking("gemini-2.5-pro", ReasoningEffort::Max), budget(32_768));
    let warning = "left out the reasoning effort: model `gemini-2.0-flash` does not support thinking".to_owned();
    assert_eq!(thinking("gemini-2.0-flash", ReasoningEffort::High), (Value::Null, vec![warning]));
    assert_eq!(thinking("gemini-1.5-pro", ReasoningEffort::Off), quiet(Value::Null));
}

#[test]
fn tool_choices_are_encoded() {
    let conversation = Conversation::new().with("hi");
    let toolset = toolset();
    let asked = |choice: ToolChoice| {
        let request = ChatRequest::new(NEW, &conversation).with_tools(&toolset).with_tool_choice(choice);
        let encoded = encoded(&settings(), &request);
        (body(&encoded).get("toolConfig").map(|config| config["functionCallingConfig"].clone()), encoded.warnings)
    };
    let lowered = toolset.lowered(Dialect::Gemini);
    let wire_name = &lowered.get("read file").expect("a tool").wire_name;
    assert_eq!(asked(ToolChoice::Auto), (None, vec![]));
    assert_eq!(asked(ToolChoice::None), (Some(json!({"mode": "NONE"})), vec![]));
    assert_eq!(asked(ToolChoice::Required), (Some(json!({"mode": "ANY"})), vec![]));
    assert_eq!(
        asked(ToolChoice::Tool("read file".to_owned())),
        (Some(json!({"mode": "ANY", "allowedFunctionNames": [wire_name]})), vec![])
    );
}

#[test]
fn a_tool_choice_must_be_offered() {
    let conversation = Conversation::new().with("hi");
    let (toolset, choice) = (toolset(), ToolChoice::Tool("gone".to_owned()));
    let request = ChatRequest::new(NEW, &conversation).with_tool_choice(choice);
    for request in [request.clone(), request.with_tools(&toolset)] {
        let error = encode(&settings(), &request).expect_err("no such tool");
        let words = "the tool choice `gone` is not an offered tool";
        assert_eq!((error.kind, error.to_string().as_str()), (ProviderErrorKind::Unusable, words));
    }
}

#[test]
fn an_output_schema_is_lowered_unless_extra_has_one() {
    let conversation = Conversation::new().with("hi");
    let schema = json!({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"n": {"const": "a"}}}}});
    let lowered = lower_output(&schema, Dialect::Gemini).expect("a schema").schema;
    assert_ne!(lowered, schema);
    let mut request = ChatRequest::new(NEW, &conversation).with_output("answer", schema);
    let found = body(&encoded(&settings(), &request))["generationConfig"].clone();
    assert_eq!(found, json!({"responseMimeType": "application/json", "responseJsonSchema": lowered}));
    request.extra.insert("generationConfig".to_owned(), json!({"responseSchema": {"type": "OBJECT"}}));
    let found = body(&encoded(&settings(), &request))["generationConfig"].clone();
    assert_eq!(found, json!({"responseSchema": {"type": "OBJECT"}}));
}

#[test]
fn a_tool_choice_without_tools_is_left_out() {
    let conversation = Conversation::new().with("hi");
    let mut request = ChatRequest::new(NEW, &conversation).with_tool_choice(ToolChoice::Required);
    request.parallel_calls = Some(false);
    let encoded = encoded(&settings(), &request);
    assert_eq!((body(&encoded).get("toolConfig"), encoded.warnings), (None, vec![]));
}

#[test]
fn a_chosen_tool_is_offered_beyond_the_limit() {
    let conversation = Conversation::new().with("hi");
    let toolset = toolset();
    let settings = settings().with_quirks(Quirks { max_tools: Some(1), ..Quirks::default() });
    let choice = ToolChoice::Tool("read file".to_owned());
    let request = ChatRequest::new(NEW, &conversation).with_tools(&toolset).with_tool_choice(choice);
    let encoded = encoded(&settings, &request);
    assert_eq!((encoded.tool_name(0), encoded.tool_name(1)), (Some("read file"), None));
}

#[test]
fn sequential_calls_are_a_warning() {
    let conversation = Conversation::new().with("hi");
    let toolset = toolset();
    let mut request = ChatRequest::new(NEW, &conversation).with_tools(&toolset);
    request.parallel_calls = Some(false);
    let warning = "the model may call several tools at once: gemini does not support disabling this";
    assert_eq!(encoded(&settings(), &request).warnings, [warning]);
    request.parallel_calls = Some(true);
    assert_eq!(encoded(&settings(), &request).warnings, Vec::<String>::new());
}
