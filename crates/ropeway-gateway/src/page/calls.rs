//! The latest calls, for the web page.

use std::sync::Arc;

use crate::client::principal::Principal;
use crate::method::Method;
use crate::observe::CallRecord;
use crate::shared::GatewayShared;

/// Maximum number of calls.
const MAX_CALLS: usize = 200;

/// Returns a principal's latest calls, newest first, as in the audit log. Lists and other requests that the gateway answers
/// itself are left out.
pub(crate) fn recent_calls(shared: &GatewayShared, principal: &Principal) -> Vec<Arc<CallRecord>> {
    let is_call = |record: &Arc<CallRecord>| {
        *record.principal == *principal.id() && record.method.and_then(Method::target).is_some()
    };
    shared.observer.recent(usize::MAX).into_iter().filter(is_call).take(MAX_CALLS).collect()
}
