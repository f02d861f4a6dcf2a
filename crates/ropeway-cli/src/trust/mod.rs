//! Trust in project files: which files the user accepted, and the review before that.

mod check;
mod digest;
mod error;
mod ownership;
mod review;
pub(crate) mod store;
pub(crate) mod summary;

pub(crate) use self::check::{
    ReloadGuard, TrustMode, TrustSubject, VARIABLE, admit, admit_as, ask, ask_together, can_ask, previous_summary,
    print_warning, record_trust, render_review, show_reviews,
};
pub(crate) use self::digest::sha256;
pub(crate) use self::error::TrustStoreError;
pub(crate) use self::ownership::ownership_problem;
pub(crate) use self::review::{TrustReview, trust_command};
pub(crate) use self::store::{TrustStatus, TrustStore};
pub(crate) use self::summary::TrustSummary;
