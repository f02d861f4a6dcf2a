//! Sources of tools and context: added later, late or failing, and the requests of servers.

use std::sync::Arc;
use std::time::Duration;

use ropeway::agent::{Agent, SamplingHandler, Step, Turn, TurnLimits};
use ropeway::config::CollisionPolicy;
use ropeway::content::ContentPart;
use ropeway::event::{Event, Events};
use ropeway::mcp::ElicitationAnswer;
use ropeway::message::Dialect;
use ropeway::registry::{ContextItem, ContextSource, Registry, ToolSource};
use ropeway::testing::{Script, ScriptedReply, ScriptedServer, model};
use ropeway::tool::{Arguments, BoxFuture, TraceParent};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::kit::{agent, done, ok, results, tool};
use crate::fast_config::{event, fast_config};
use crate::scene::scene;

/// Returns tools that answer with these words.
fn registry(words: &str, names: &[&str]) -> Registry {
    let tools = names.iter().map(|name| {
        let words = words.to_owned();
        let tool = tool(name, move |_, _| std::future::ready(Ok(words.clone())));
        ropeway::checked::CheckedTool::new(Arc::new(tool))
    });
    Registry::assemble([tools.collect()], CollisionPolicy::LastWins).0
}

/// A source of context that returns the number of its requests.
#[derive(Clone, Default)]
struct Page {
    title: &'static str,
    asked: Arc<std::sync::atomic::AtomicUsize>,
    /// Hangs from this request on.
    silent_from: usize,
    /// Panics from this request on.
    falls_from: usize,
}

impl Page {
    fn new(title: &'static str) -> Self {
        Self { title, silent_from: usize::MAX, falls_from: usize::MAX, ..Self::default() }
    }
}

impl ContextSource for Page {
    fn context<'a>(&'a self) -> BoxFuture<'a, Vec<ContextItem>> {
        Box::pin(async move {
            let asked = 1 + self.asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            assert!(asked < self.falls_from, "on purpose");
            if asked >= self.silent_from {
                std::future::pending::<()>().await;
            }
            vec![ContextItem::new(self.title, vec![ContentPart::text(format!("{} {asked}", self.title))])]
        })
    }
}

/// A source of tools that is never ready.
struct Never;

impl ToolSource for Never {
    fn registry(&self) -> Registry {
        Registry::default()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// Returns the warnings of a turn.
async fn warnings(mut turn: Turn) -> Vec<String> {
    let mut warnings = Vec::new();
    while let Some(step) = turn.next().await {
        if let Step::Warning { message } = step {
            warnings.push(message);
        }
    }
    done(turn).await;
    warnings
}

/// Returns a model over HTTP that records its requests.
async fn listening(answers: usize) -> (ropeway::testing::ModelServer, ropeway::provider::Provider) {
    let answers = (0..answers).map(|_| ScriptedReply::text("fine").answer(Dialect::Chat));
    let server = ropeway::testing::ModelServer::start(answers).await.expect("a free port");
    let settings =
        ropeway::provider::ProviderSettings::new(Dialect::Chat).with_base_url(format!("{}/v1", server.url()));
    let provider = ropeway::provider::Provider::new(settings.with_key("a-key")).expect("a provider");
    (server, provider)
}

/// Returns the context pages of each model request.
fn pages(server: &ropeway::testing::ModelServer) -> Vec<Vec<String>> {
    let of = |body: Value| {
        let body = body["messages"].to_string();
        let page = |title: &str| (1..9).map(|n| format!("{title} {n}")).find(|page| body.contains(page.as_str()));
        ["Monday", "Tuesday"].iter().filter_map(|title| page(title)).collect()
    };
    server.bodies().into_iter().map(of).collect()
}

#[tokio::test]
async fn a_late_context_source_keeps_its_content_and_delays_no_other() {
    let (server, provider) = listening(2).await;
    let slow = Page { silent_from: 2, ..Page::new("Tuesday") };
    let agent = Agent::builder().provider(provider).model("m").context(Page::new("Monday")).context(slow);
    let agent = agent.limits(TurnLimits::default().with_connect_time(Duration::ZERO)).build().expect("an agent");
    assert_eq!(warnings(agent.send("q")).await, [""; 0]);
    let late = "1 context source timed out; using previous content";
    assert_eq!(warnings(agent.send("q")).await, [late]);
    assert_eq!(pages(&server), [["Monday 1", "Tuesday 1"], ["Monday 2", "Tuesday 1"]]);
}

#[tokio::test]
async fn a_context_source_that_panics_keeps_its_content_and_warns() {
    let (server, provider) = listening(2).await;
    let frail = Page { falls_from: 2, ..Page::new("Monday") };
    let agent = Agent::builder().provider(provider).model("m").context(frail).context(Page::new("Tuesday"));
    let agent = agent.build().expect("an agent");
    assert_eq!(warnings(agent.send("q")).await, [""; 0]);
    let fallen = "1 context source panicked; using previous content";
    assert_eq!(warnings(agent.send("q")).await, [fallen]);
    assert_eq!(pages(&server), [["Monday 1", "Tuesday 1"], ["Monday 1", "Tuesday 2"]]);
}

#[tokio::test(start_paused = true)]
async fn the_connect_time_is_waited_for_once() {
    let slow = Page { silent_from: 1, ..Page::new("Monday") };
    let agent = agent(Dialect::Chat, [ScriptedReply::text("fine")]).source(Never).context(slow);
    let agent =
        agent.limits(TurnLimits::default().with_connect_time(Duration::from_secs(60))).build().expect("an agent");
    let begun = Instant::now();
    let told = [
        "1 tool source not ready after 60 s; skipped for this turn",
        "1 context source timed out; using previous content",
    ];
    assert_eq!(warnings(agent.send("q")).await, told);
    assert_eq!(begun.elapsed(), Duration::from_secs(61));
}

#[tokio::test]
async fn name_collisions_are_reported_in_the_next_turn() {
    let agent = agent(Dialect::Chat, [ScriptedReply::text("one"), ScriptedReply::text("two")]);
    let agent = agent.source(registry("first", &["same"])).source(registry("second", &["same"])).build();
    let agent = agent.expect("an agent");
    assert_eq!(agent.all_tools().len(), 1);
    let told = warnings(agent.send("q")).await;
    assert!(told.len() == 1 && told[0].contains("`same`"), "{told:?}");
    assert_eq!(warnings(agent.send("q")).await, [""; 0], "it is reported once");
}

#[tokio::test]
async fn an_added_source_is_used_at_the_next_turn() {
    let call = |id: &str| ScriptedReply::call(id, "late", json!({}));
    let agent = agent(Dialect::Gemini, [call("a"), ScriptedReply::text("no"), call("b"), ScriptedReply::text("yes")]);
    let agent = agent.build().expect("an agent");
    done(agent.send("q")).await;
    agent.add_source(registry("here", &["late"]));
    done(agent.send("q")).await;
    let told = results(&agent.history());
    assert!(told[0].2, "{told:?}");
    assert_eq!(told[1], ok("b", "here"));
}

/// A source of tools and context.
struct Both(Registry, Page);

impl ToolSource for Both {
    fn registry(&self) -> Registry {
        self.0.clone()
    }
}

impl ContextSource for Both {
    fn context<'a>(&'a self) -> BoxFuture<'a, Vec<ContextItem>> {
        self.1.context()
    }
}

#[tokio::test]
async fn an_added_bridge_brings_tools_and_context() {
    let (server, provider) = listening(1).await;
    let agent = Agent::builder().provider(provider).model("m").build().expect("an agent");
    agent.add_bridge(Both(registry("here", &["late"]), Page::new("Monday")));
    done(agent.send("q")).await;
    assert_eq!(pages(&server), [["Monday 1"]]);
    assert_eq!(server.bodies()[0]["tools"][0]["function"]["name"], "late");
}

#[test]
fn added_servers_connect_at_the_next_turn_and_send_events() {
    scene(|_| async {
        let servers = ["one", "two", "three"].map(|alias| {
            let scripted = ScriptedServer::new(Script::default());
            let mut config = fast_config(scripted.in_process());
            config.alias = alias.into();
            (scripted, config)
        });
        let calls = ["one", "two", "three"].iter().fold(ScriptedReply::nothing(), |reply, alias| {
            reply.and_call(*alias, format!("mcp_{alias}_echo"), json!({"message": alias}))
        });
        let events = Events::default();
        let mut gathered = events.subscribe();
        let agent =
            agent(Dialect::Chat, [calls, ScriptedReply::text("fine")]).events(events).build().expect("an agent");
        let mut own = agent.events();
        let [first, rest @ ..] = servers.clone().map(|(_, config)| config);
        agent.add_mcp(first);
        agent.add_mcps(rest);
        assert!(servers.iter().all(|(scripted, _)| scripted.connections() == 0));
        done(agent.send("q")).await;
        assert_eq!(results(&agent.history()), ["one", "two", "three"].map(|alias| ok(alias, alias)));
        for told in [&mut gathered, &mut own] {
            event(told, |event| matches!(event, Event::Ready { .. }).then_some(())).await;
        }
    });
}

/// Returns the answer that a server's tool received from the agent.
async fn answered(agent: Agent) -> Value {
    assert_eq!(done(agent.send("q")).await.text, "fine");
    let told = results(&agent.history()).remove(0).1;
    serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}"))
}

#[test]
fn servers_sample_the_model_of_the_sampling_handler() {
    scene(|_| async {
        let sample = || ScriptedReply::call("a", "mcp_peer_sample", json!({"prompt": "Say hi."}));
        let server = || fast_config(ScriptedServer::new(Script::default()).in_process());
        let own = [sample(), ScriptedReply::text("I am the own model."), ScriptedReply::text("fine")];
        let own = agent(Dialect::Chat, own).mcp(server()).allow_sampling().build().expect("an agent");
        assert_eq!(answered(own).await["content"]["text"], "I am the own model.");
        let other = SamplingHandler::new(model(Dialect::Chat, [ScriptedReply::text("I am another one.")]), "other");
        let asking = agent(Dialect::Chat, [sample(), ScriptedReply::text("fine")]).mcp(server()).sampling(other);
        assert_eq!(answered(asking.build().expect("an agent")).await["content"]["text"], "I am another one.");
    });
}

#[test]
fn servers_elicit_through_the_agent() {
    scene(|_| async {
        let replies =
            [ScriptedReply::call("a", "mcp_peer_elicit", json!({"message": "Who?"})), ScriptedReply::text("fine")];
        let agent = agent(Dialect::Chat, replies)
            .mcp(fast_config(ScriptedServer::new(Script::default()).in_process()))
            .on_elicitation(|asked| async move {
                let name = format!("whoever answers {}", asked.message);
                Ok(ElicitationAnswer::Accept(Arguments::from_iter([("name".to_owned(), json!(name))])))
            })
            .build()
            .expect("an agent");
        let accepted = json!({"action": "accept", "content": {"name": "whoever answers Who?"}});
        assert_eq!(answered(agent).await, accepted);
    });
}

#[test]
fn calls_are_part_of_the_trace_of_the_host() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let replies = [ScriptedReply::call("a", "mcp_peer_echo", json!({"message": "x"})), ScriptedReply::text("fine")];
        let parent: TraceParent =
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().expect("a traceparent");
        let agent = agent(Dialect::Chat, replies).mcp(fast_config(scripted.in_process())).traceparent(parent);
        done(agent.build().expect("an agent").send("q")).await;
        let told = scripted.received_of("tools/call")[0]["params"]["_meta"]["traceparent"].clone();
        assert!(told.as_str().is_some_and(|it| it.contains("0af7651916cd43dd8448eb211c80319c")), "{told}");
    });
}
