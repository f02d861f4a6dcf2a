//! Rust modules: types, and a client over a `ropeway` library bridge.

use super::identifiers::{Scope, pascal_case};
use super::interface::{ServerInterface, ToolInterface};
use super::rust_layout::{method_start, tool_call};
use super::rust_types::{self, RootType, USED_TYPES, doc_comment, field_name};
use super::text::{MARK, comment_name, rust_literal};

const COMMON: &str = include_str!("rust_client.template");

/// Returns the module for a server.
pub(super) fn generate(server: &ServerInterface) -> String {
    let mut scope = Scope::with_reserved(&USED_TYPES);
    scope.claim("CallFailure");
    let class = scope.claim(&format!("{}Client", pascal_case(&server.alias, "Server")));
    let mut methods = Scope::with_reserved(&["new"]);
    let (mut types, mut body) = (String::new(), String::new());
    for tool in &server.tools {
        let base = pascal_case(&tool.name, "Tool");
        let arguments = rust_types::write(&tool.input, &format!("{base}Arguments"), true, &mut scope, &mut types);
        let result = tool.output.as_ref();
        let result = result
            .map(|schema| rust_types::write(schema, &format!("{base}Result"), false, &mut scope, &mut types).name);
        body.push_str(&method(tool, &methods.claim(&field_name(&tool.name)), &arguments, result.as_deref()));
    }
    let (alias, title) = (comment_name(&server.alias), comment_name(&server.title));
    let (head, tail) = COMMON.split_once("    // methods\n").unwrap_or((COMMON, ""));
    // Each placeholder is searched in the template only: the class may contain the other one.
    let (before, after) = head.split_once("SERVER").unwrap_or((head, ""));
    let head = [before, after].map(|part| part.replace("ServerClient", &class)).join(alias.as_str());
    let head = format!("// {MARK} rust`. Do not edit.\n// Server: {alias} ({title})\n\n{head}{body}{tail}\n{types}");
    head.trim_end().to_owned() + "\n"
}

fn method(tool: &ToolInterface, name: &str, arguments: &RootType, result: Option<&str>) -> String {
    let comment = doc_comment(&tool.description, 4);
    let mut parameters = vec!["&self".to_owned()];
    if !arguments.is_empty {
        parameters.push(format!("arguments: &{}", arguments.name));
    }
    let value = if arguments.is_empty { "()" } else { "arguments" };
    let literal = rust_literal(&tool.library_name);
    let (kind, body) = match result {
        Some(result) => {
            let call = tool_call(&literal, value, 12);
            let call = if call.contains('\n') { format!("\n            {call},\n        ") } else { call };
            (format!("Result<{result}, CallFailure>"), format!("CallFailure::parse({call})"))
        }
        None => ("::ropeway::Envelope".to_owned(), tool_call(&literal, value, 8)),
    };
    format!("\n{comment}{}        {body}\n    }}\n", method_start(name, &parameters, &kind))
}
