//! Limits on what principals hold, in counts and bytes, so that none takes more than its share.
//!
//! Every table that clients can fill takes a [`Hold`] before it stores an entry, and stores the hold beside it. Dropping the hold
//! gives the amount back. Totals and per-principal amounts are atomic counters, so a hold costs two additions, however many
//! principals or entries exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;

use ropeway_config::GatewayLimits;

/// Maximum request body bytes in memory, for all principals together. Raised if one body may exceed a principal's share.
const MAX_BODY_BYTES: usize = 256 << 20;

/// Maximum bytes for subscribed URIs, for all principals together.
const MAX_SUBSCRIPTION_BYTES: usize = 64 << 20;

/// Something that clients can take from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Open connections.
    Connections,
    /// Open event streams.
    Streams,
    /// Sessions in memory.
    Sessions,
    /// Calls in flight.
    Calls,
    /// Calls that wait for client input.
    Parked,
    /// Connections to servers that belong to one client.
    Isolated,
    /// Request bodies that arrive in many pieces.
    Bodies,
    /// Request body bytes in memory.
    BodyBytes,
    /// Subscription bytes.
    SubscriptionBytes,
}

impl Resource {
    const ALL: [Self; 9] = [
        Self::Connections,
        Self::Streams,
        Self::Sessions,
        Self::Calls,
        Self::Parked,
        Self::Isolated,
        Self::Bodies,
        Self::BodyBytes,
        Self::SubscriptionBytes,
    ];

    /// Returns the name in errors.
    fn noun(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Streams => "event streams",
            Self::Sessions => "sessions",
            Self::Calls => "calls in flight",
            Self::Parked => "calls that wait for input",
            Self::Isolated => "isolated connections",
            Self::Bodies => "large requests at once",
            Self::BodyBytes => "bytes of request bodies",
            Self::SubscriptionBytes => "bytes of subscriptions",
        }
    }

    /// Returns the gateway-wide limit's name.
    fn limit_name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Streams => "streams",
            Self::Sessions => "sessions",
            Self::Calls => "calls",
            Self::Parked => "parked",
            Self::Isolated => "isolated",
            Self::Bodies => "bodies",
            Self::BodyBytes => "body_bytes",
            Self::SubscriptionBytes => "subscription_bytes",
        }
    }

    /// Returns the per-principal limit's name.
    fn share_name(self) -> &'static str {
        match self {
            Self::Connections => "connections_per_principal",
            Self::Streams => "streams_per_principal",
            Self::Sessions => "sessions_per_principal",
            Self::Calls => "calls_per_principal",
            Self::Parked => "parked_per_principal",
            Self::Isolated => "isolated_per_principal",
            Self::Bodies => "bodies_per_principal",
            Self::BodyBytes => "body_bytes_per_principal",
            Self::SubscriptionBytes => "subscription_bytes_per_principal",
        }
    }

    /// Returns the divisor that turns the gateway-wide limit into a principal's share.
    fn divisor(self) -> usize {
        match self {
            // A larger share than for streams, so that a principal that uses all its streams can still make requests.
            Self::Connections => 2,
            _ => 4,
        }
    }
}

/// One amount per resource.
#[derive(Debug, Default)]
struct Amounts([AtomicUsize; Resource::ALL.len()]);

impl Amounts {
    fn of(&self, resource: Resource) -> &AtomicUsize {
        &self.0[resource as usize]
    }

    /// Adds to an amount, unless it would exceed the limit.
    fn add(&self, resource: Resource, amount: usize, limit: usize) -> bool {
        let add = |held: usize| held.checked_add(amount).filter(|sum| *sum <= limit);
        self.of(resource).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }
}

/// What one principal holds. Cloning is cheap; clones are one principal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings(Arc<PrincipalHoldings>);

#[derive(Debug, Default)]
struct PrincipalHoldings {
    amounts: Amounts,
    /// Whether the principal has a name, so that it shares the gateway with others.
    is_named: bool,
}

impl Holdings {
    /// Returns empty holdings for a principal. All unnamed clients are one principal, which may hold everything.
    pub(crate) fn new(is_named: bool) -> Self {
        Self(Arc::new(PrincipalHoldings { amounts: Amounts::default(), is_named }))
    }

    /// Returns a number that no other principal has while these holdings exist. Never zero.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Returns the amount that the principal holds.
    pub(crate) fn held(&self, resource: Resource) -> usize {
        self.0.amounts.of(resource).load(Ordering::Relaxed)
    }
}

/// A limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ShareError {
    /// One principal holds too much.
    #[error("too many {} (limit: {limit} per principal)", resource.noun())]
    Principal { resource: Resource, limit: usize },
    /// All principals together hold too much.
    #[error("too many {} (limit: {limit}); try again later", resource.noun())]
    Gateway { resource: Resource, limit: usize },
}

impl ShareError {
    /// Returns the error's HTTP status.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Principal { .. } => 429,
            Self::Gateway { .. } => 503,
        }
    }

    /// Returns the rule's name in the audit log.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Self::Principal { resource, .. } => resource.share_name(),
            Self::Gateway { resource, .. } => resource.limit_name(),
        }
    }
}

/// A gateway's limits, and what all principals hold together. Cloning is cheap.
///
/// The gateway and its tables own clones, and so does each [`Hold`]. Only [`Hold::grow`] and [`Hold::shrink`] write the counters.
/// They need no lock: an addition is one atomic update that fails above the limit. A hold adds to the principal's counter first
/// and subtracts again if the gateway's limit is reached, so a concurrent request by the same principal can be refused for a
/// moment. Dropping a hold subtracts its amount from both counters.
#[derive(Clone, Debug)]
pub(crate) struct Shares(Arc<SharesInner>);

#[derive(Debug)]
struct SharesInner {
    limits: [usize; Resource::ALL.len()],
    held: Amounts,
    /// Whether the gateway has one principal only, which may hold everything.
    has_one_principal: AtomicBool,
}

impl Shares {
    pub(crate) fn new(limits: &GatewayLimits) -> Self {
        let limit = |resource| match resource {
            Resource::Connections | Resource::Streams => limits.connections,
            Resource::Sessions => limits.sessions,
            Resource::Calls | Resource::Bodies => limits.calls,
            Resource::Parked => limits.parked,
            Resource::Isolated => limits.isolated,
            Resource::BodyBytes => MAX_BODY_BYTES.max(limits.body.saturating_mul(resource.divisor())),
            Resource::SubscriptionBytes => MAX_SUBSCRIPTION_BYTES,
        };
        Self(Arc::new(SharesInner {
            limits: Resource::ALL.map(limit),
            held: Amounts::default(),
            has_one_principal: AtomicBool::new(false),
        }))
    }

    /// Sets whether the gateway has one principal only.
    pub(crate) fn set_one_principal(&self, has_one_principal: bool) {
        self.0.has_one_principal.store(has_one_principal, Ordering::Relaxed);
    }

    /// Returns the maximum that a principal may hold.
    pub(crate) fn share(&self, resource: Resource, of: &Holdings) -> usize {
        let limit = self.0.limits[resource as usize];
        let is_alone = !of.0.is_named || self.0.has_one_principal.load(Ordering::Relaxed);
        if is_alone { limit } else { (limit / resource.divisor()).max(1) }
    }

    /// Returns the total that all principals hold.
    pub(crate) fn held(&self, resource: Resource) -> usize {
        self.0.held.of(resource).load(Ordering::Relaxed)
    }

    /// Returns `true` if the principal or the gateway uses more than half its limit.
    pub(crate) fn is_short(&self, resource: Resource, of: &Holdings) -> bool {
        self.held(resource) > self.0.limits[resource as usize] / 2 || of.held(resource) > self.share(resource, of) / 2
    }

    /// Takes an amount for a principal, until the hold is dropped.
    ///
    /// # Errors
    ///
    /// Fails if the principal would exceed its share or the gateway its limit. Existing holds are unaffected.
    pub(crate) fn take(&self, resource: Resource, of: &Holdings, amount: usize) -> Result<Hold, ShareError> {
        self.take_within(resource, of, amount, usize::MAX)
    }

    /// Like [`take`](Self::take), with the principal's own limit in addition.
    pub(crate) fn take_within(
        &self,
        resource: Resource,
        of: &Holdings,
        amount: usize,
        own_limit: usize,
    ) -> Result<Hold, ShareError> {
        let mut hold = Hold { shares: self.clone(), of: of.clone(), resource, amount: 0, own_limit };
        hold.grow(amount)?;
        Ok(hold)
    }
}

/// An amount that a principal holds, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    shares: Shares,
    of: Holdings,
    resource: Resource,
    amount: usize,
    own_limit: usize,
}

impl Hold {
    /// Takes more. The hold is unchanged if that fails.
    pub(crate) fn grow(&mut self, amount: usize) -> Result<(), ShareError> {
        let resource = self.resource;
        let share = self.shares.share(resource, &self.of).min(self.own_limit);
        if !self.of.0.amounts.add(resource, amount, share) {
            return Err(ShareError::Principal { resource, limit: share });
        }
        let limit = self.shares.0.limits[resource as usize];
        if !self.shares.0.held.add(resource, amount, limit) {
            self.of.0.amounts.of(resource).fetch_sub(amount, Ordering::Relaxed);
            return Err(ShareError::Gateway { resource, limit });
        }
        self.amount += amount;
        Ok(())
    }

    /// Ties the hold to the bytes, until their last slice is dropped.
    pub(crate) fn attach(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(HeldBytes { bytes, _hold: self })
    }

    /// Gives back an amount, at most everything that is held.
    pub(crate) fn shrink(&mut self, amount: usize) {
        let amount = amount.min(self.amount);
        self.of.0.amounts.of(self.resource).fetch_sub(amount, Ordering::Relaxed);
        self.shares.0.held.of(self.resource).fetch_sub(amount, Ordering::Relaxed);
        self.amount -= amount;
    }
}

/// Bytes that a principal holds.
struct HeldBytes {
    bytes: Bytes,
    _hold: Hold,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shrink(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares() -> Shares {
        Shares::new(&GatewayLimits { isolated: 8, connections: 8, ..GatewayLimits::default() })
    }

    #[test]
    fn a_principal_holds_at_most_its_share() {
        let shares = shares();
        let (alice, bob) = (Holdings::new(true), Holdings::new(true));
        let held = shares.take(Resource::Isolated, &alice, 2).expect("a quarter of 8");
        let error = shares.take(Resource::Isolated, &alice, 1).expect_err("more than the share");
        assert_eq!((error.status(), error.rule()), (429, "isolated_per_principal"));
        assert_eq!(error.to_string(), "too many isolated connections (limit: 2 per principal)");
        let _connections = shares.take(Resource::Connections, &alice, 4).expect("half of 8");
        assert!(shares.take(Resource::Connections, &alice, 1).is_err());
        let _other = shares.take(Resource::Isolated, &bob, 2).expect("another principal");
        assert_eq!(shares.held(Resource::Isolated), 4);
        drop(held);
        assert_eq!((shares.held(Resource::Isolated), alice.held(Resource::Isolated)), (2, 0));
    }

    #[test]
    fn the_only_principal_may_hold_everything_and_all_together_no_more() {
        let shares = shares();
        let (unnamed, named) = (Holdings::new(false), Holdings::new(true));
        let whole = shares.take(Resource::Isolated, &unnamed, 8).expect("everything");
        let error = shares.take(Resource::Isolated, &named, 1).expect_err("nothing is left");
        assert_eq!((error.status(), error.rule()), (503, "isolated"));
        assert_eq!(named.held(Resource::Isolated), 0, "a refused amount is not held");
        drop(whole);
        shares.set_one_principal(true);
        shares.take(Resource::Isolated, &named, 8).expect("everything");
    }

    #[test]
    fn a_hold_grows_and_shrinks() {
        let shares = shares();
        let alice = Holdings::new(true);
        let mut hold = shares.take_within(Resource::BodyBytes, &alice, 10, 100).expect("room");
        hold.grow(90).expect("room");
        assert!(hold.grow(1).is_err() && hold.grow(usize::MAX).is_err(), "the limit of the principal itself");
        hold.shrink(60);
        assert_eq!((alice.held(Resource::BodyBytes), shares.held(Resource::BodyBytes)), (40, 40));
        hold.shrink(1000);
        drop(hold);
        assert_eq!((alice.held(Resource::BodyBytes), shares.held(Resource::BodyBytes)), (0, 0));
    }

    #[test]
    fn bytes_are_held_until_their_last_slice_is_dropped() {
        let (shares, alice) = (shares(), Holdings::new(true));
        let hold = shares.take(Resource::BodyBytes, &alice, 5).expect("room");
        let bytes = hold.attach(Bytes::from_static(b"hello"));
        let slice = bytes.slice(1..3);
        drop(bytes);
        assert_eq!((&*slice, alice.held(Resource::BodyBytes)), (&b"el"[..], 5));
        drop(slice);
        assert_eq!(alice.held(Resource::BodyBytes), 0);
    }
}
