//! Secrets: detecting literals, storing them in `.env`, and redacting them from output.

pub(crate) mod dotenv;
pub(crate) mod gitignore;
pub(crate) mod literal;
pub(crate) mod redaction;
