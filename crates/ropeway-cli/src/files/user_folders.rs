//! The user's directories; the library knows them too, because it stores tokens there.

pub(crate) use ropeway_core::user_folders::{state_folder, user_folder};
