//! Subscriptions of one connection: retried after a failure, and independent of each other.

use ropeway::Event;
use ropeway::testing::{Fault, FaultTrigger, Script};
use serde_json::json;

use crate::fast_config::{SOON, echo, event, in_process, ms, until};
use crate::scene::scene;

fn refusal(code: i64) -> Fault {
    Fault::Error(json!({"code": code, "message": "not now"}))
}

#[test]
fn a_refused_subscription_is_requested_again() {
    scene(|_| async {
        let on = FaultTrigger::method("resources/subscribe").first(2);
        let (scripted, server) = in_process(Script::legacy().fault(on, refusal(-32603))).await;
        server.subscribe("test://hello");
        tokio::time::timeout(SOON, scripted.wait_for("resources/subscribe", 3)).await.expect("another attempt");
        tokio::time::sleep(ms(1500)).await;
        assert_eq!(scripted.received_of("resources/subscribe").len(), 3, "a confirmed subscription is not repeated");
        server.unsubscribe("test://hello");
        until("the end", || scripted.received_of("resources/unsubscribe").len() == 1).await;
        server.close().await;
    });
}

#[test]
fn a_refused_listen_request_is_sent_again() {
    scene(|_| async {
        let on = FaultTrigger::method("subscriptions/listen").first(2);
        let (scripted, server) = in_process(Script::modern().fault(on, refusal(-32603))).await;
        tokio::time::timeout(SOON, scripted.wait_for("subscriptions/listen", 3)).await.expect("another attempt");
        server.close().await;
    });
}

#[test]
fn a_server_without_the_method_is_asked_once() {
    scene(|_| async {
        let on = FaultTrigger::method("subscriptions/listen");
        let (scripted, server) = in_process(Script::modern().fault(on, refusal(-32601))).await;
        scripted.wait_for("subscriptions/listen", 1).await;
        server.subscribe("test://hello");
        tokio::time::sleep(ms(1000)).await;
        assert_eq!(scripted.received_of("subscriptions/listen").len(), 1);
        server.close().await;
        let on = FaultTrigger::method("resources/subscribe");
        let (scripted, server) = in_process(Script::legacy().fault(on, refusal(-32601))).await;
        server.subscribe("test://hello");
        tokio::time::sleep(ms(1000)).await;
        assert_eq!(scripted.received_of("resources/subscribe").len(), 1);
        server.close().await;
    });
}

#[test]
fn a_hanging_subscription_does_not_delay_others() {
    scene(|_| async {
        let on = FaultTrigger { name: Some("test://hello".to_owned()), ..FaultTrigger::method("resources/subscribe") };
        let (scripted, server) = in_process(Script::legacy().fault(on, Fault::Hang)).await;
        server.subscribe("test://hello");
        scripted.wait_for("resources/subscribe", 1).await;
        server.subscribe("test://counter");
        tokio::time::timeout(SOON / 3, scripted.wait_for("resources/subscribe", 2)).await.expect("the other one");
        server.close().await;
    });
}

#[test]
fn changes_before_an_acknowledgement_become_one_request() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::modern()).await;
        for number in 0..100 {
            server.subscribe(format!("test://{number}"));
        }
        let has_all = || {
            let listens = scripted.received_of("subscriptions/listen");
            listens.last().is_some_and(|last| {
                last["params"]["notifications"]["resourceSubscriptions"].as_array().is_some_and(|all| all.len() == 100)
            })
        };
        until("all of them", has_all).await;
        assert!(scripted.received_of("subscriptions/listen").len() < 20);
        server.close().await;
    });
}

#[test]
fn a_subscribed_resource_counts_as_changed_after_a_time_without_notifications() {
    scene(|_| async {
        for (script, method) in [(Script::legacy(), "resources/subscribe"), (Script::modern(), "subscriptions/listen")]
        {
            let exit = FaultTrigger::tool("echo").connection(1);
            let (scripted, server) = in_process(script.fault(exit, Fault::ExitAfterAnswer)).await;
            server.subscribe("test://hello");
            let is_requested = || scripted.received_of(method).iter().any(|it| it.to_string().contains("test://hello"));
            until("the subscription", is_requested).await;
            tokio::time::sleep(ms(200)).await;
            let mut events = server.events();
            let is_update = |event: Event| matches!(event, Event::ResourceUpdated { uri, .. } if uri == "test://hello");
            echo(&server).await.expect("the last answer of the connection");
            event(&mut events, |event| is_update(event).then_some(())).await;
            if method == "subscriptions/listen" {
                scripted.end_listening();
                event(&mut events, |event| is_update(event).then_some(())).await;
            }
            server.close().await;
        }
    });
}
