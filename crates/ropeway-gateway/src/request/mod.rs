//! One client request, from its arrival to its answer.

pub(crate) mod calls;
pub(crate) mod dispatch;
pub(crate) mod errors;
pub(crate) mod exchange;
pub(crate) mod exchanges;
pub(crate) mod header_view;
pub(crate) mod limits;
pub(crate) mod listen;
pub(crate) mod lists;
pub(crate) mod methods;
pub(crate) mod parked;
pub(crate) mod principal_tools;
pub(crate) mod progress;
pub(crate) mod relay;
pub(crate) mod reply;
pub(crate) mod request_identity;
pub(crate) mod requester;
pub(crate) mod retry;
pub(crate) mod search;
pub(crate) mod server_params;
pub(crate) mod sign_in_offer;
pub(crate) mod startup;
pub(crate) mod subscribe;
pub(crate) mod task_ids;
pub(crate) mod tasks;
pub(crate) mod translate;
