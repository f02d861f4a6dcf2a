//! JSON responses.

use std::io;

use serde_json::{Value, json};

use crate::http_connection::{ConnectionReuse, HttpConnection};

pub(super) async fn answer_json(
    connection: &mut HttpConnection,
    status: u16,
    extra: &[(String, String)],
    body: &[u8],
    chunked: bool,
) -> io::Result<ConnectionReuse> {
    let mut headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    headers.extend_from_slice(extra);
    connection.answer(status, &headers, body, chunked).await
}

pub(super) async fn send_error(
    connection: &mut HttpConnection,
    status: u16,
    code: i64,
    message: &str,
) -> io::Result<ConnectionReuse> {
    let body = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    answer_json(connection, status, &[], body.to_string().as_bytes(), false).await
}

/// Returns a modern error's HTTP status, unless it is 200.
pub(super) fn modern_status(text: &str, bad_meta: bool) -> Option<u16> {
    let message: Value = serde_json::from_str(text).ok()?;
    match message["error"]["code"].as_i64()? {
        -32022..=-32020 => Some(400),
        -32602 if bad_meta => Some(400),
        -32601 => Some(404),
        _ => None,
    }
}
