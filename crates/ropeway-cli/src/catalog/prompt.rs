//! Prompts by name, with arguments.

use ropeway_core::suggest;
use ropeway_core::tool::{Alias, ToolDefinition};
use ropeway_mcp::{Mcp, Prompt, PromptArgument, PromptResult};
use serde_json::{Map, Value, json};

use crate::arguments::argument::RawArguments;
use crate::connect::fan_out::fan_out;
use crate::connect::session::Session;
use crate::connect::trace_variable::call_context;
use crate::failure::Failure;

/// Gets a prompt by name, with arguments from a command line.
pub(crate) async fn fill(session: &Session, name: &str, words: &[String]) -> Result<PromptResult, Failure> {
    get(session, name, RawArguments::read(words, None)?).await
}

pub(crate) async fn get(session: &Session, name: &str, typed: RawArguments) -> Result<PromptResult, Failure> {
    let (alias, server, prompt) = choose(session, name).await?;
    let arguments = typed.for_prompt(&as_tool(&prompt))?;
    for name in arguments.keys() {
        known(&prompt, name)?;
    }
    if let Some(missing) =
        prompt.arguments.iter().find(|argument| argument.required && !arguments.contains_key(&argument.name))
    {
        let name = &missing.name;
        return Err(Failure::usage(format!("prompt `{}` requires argument `{name}`", prompt.name))
            .hint(format!("try {name}=VALUE")));
    }
    let cx = call_context();
    Ok(session.step("waiting for", &alias, server.get_prompt_with(&prompt.name, arguments, &cx)).await??)
}

/// Returns a failure if the prompt has no such argument.
fn known(prompt: &Prompt, name: &str) -> Result<(), Failure> {
    let names = || prompt.arguments.iter().map(|argument| argument.name.as_str());
    if names().any(|known| known == name) {
        return Ok(());
    }
    let failure = Failure::usage(format!("prompt `{}` has no argument `{name}`", prompt.name));
    Err(match suggest::did_you_mean(name, names()) {
        Some(question) => failure.hint(question),
        None if prompt.arguments.is_empty() => failure.hint("the prompt has no arguments"),
        None => failure.hint(format!("available arguments: {}", names().collect::<Vec<_>>().join(", "))),
    })
}

/// Converts a prompt to a tool with string arguments and no others.
fn as_tool(prompt: &Prompt) -> ToolDefinition {
    let property = |argument: &PromptArgument| match &argument.description {
        Some(description) => json!({"type": "string", "description": description}),
        None => json!({"type": "string"}),
    };
    let properties: Map<String, Value> =
        prompt.arguments.iter().map(|argument| (argument.name.clone(), property(argument))).collect();
    let required = prompt.arguments.iter().filter(|argument| argument.required).map(|argument| argument.name.as_str());
    let required: Vec<&str> = required.collect();
    ToolDefinition::new(prompt.name.clone()).with_input_schema(
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}),
    )
}

async fn choose(session: &Session, name: &str) -> Result<(Alias, Mcp, Prompt), Failure> {
    let listed = fan_out(session, "listing the prompts of", async |server| server.list_prompts().await).await?;
    let all: Vec<(&Alias, &Prompt)> =
        listed.answered().flat_map(|(alias, prompts)| prompts.iter().map(move |prompt| (alias, prompt))).collect();
    let is_meant = |(alias, prompt): &&(&Alias, &Prompt)| {
        prompt.name == name
            || name.strip_prefix(alias.as_str()).and_then(|rest| rest.strip_prefix('.')) == Some(&prompt.name)
    };
    let meant: Vec<_> = all.iter().filter(is_meant).collect();
    match meant[..] {
        [(alias, prompt)] => {
            let server =
                session.server(alias).ok_or_else(|| Failure::usage(format!("server `{alias}` was removed")))?;
            Ok(((*alias).clone(), server, (*prompt).clone()))
        }
        [] => {
            let failure = Failure::usage(format!("unknown prompt `{name}`"));
            let names: Vec<String> = all.iter().map(|(alias, prompt)| format!("{alias}.{}", prompt.name)).collect();
            let failure = match suggest::did_you_mean(name, names.iter().map(String::as_str)) {
                Some(question) => failure.hint(question),
                None if listed.answered().next().is_none() => failure,
                None if names.is_empty() => failure.hint("no server has prompts"),
                None => failure.hint(format!("available prompts: {}", names.join(", "))),
            };
            Err(session.advice.add_unavailable(failure, &session.bridge.statuses()))
        }
        _ => {
            let names: Vec<String> = meant.iter().map(|(alias, _)| format!("`{alias}.{name}`")).collect();
            Err(Failure::usage(format!("prompt `{name}` is ambiguous"))
                .hint(format!("name the server: {}", names.join(", "))))
        }
    }
}
