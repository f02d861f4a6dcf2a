//! Tools and prompts from the connected servers, listed and resolved by name.

mod prompt;
mod tool_list;

pub(crate) use self::prompt::{fill as fill_prompt, get as get_prompt};
pub(crate) use self::tool_list::{
    found, found_json, group, list, list_json, one_server, remembered_group, search, text as tools_text,
};
