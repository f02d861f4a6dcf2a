//! Trust in project files: what a person has accepted, and what is shown before.

mod gate;
mod review;
pub(crate) mod store;
pub(crate) mod summary;

pub(crate) use self::gate::{
    Follower, Mode, VARIABLE, admit, admit_as, ask, before, can_ask, remember, shown, warning,
};
pub(crate) use self::review::TrustReview;
pub(crate) use self::store::{Status, Store, StoreError};
pub(crate) use self::summary::Summary;
