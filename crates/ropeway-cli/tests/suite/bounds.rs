//! The binary against hostile servers: memory, descriptors and CPU time stay bounded, and other servers keep working.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::temp_home::TempHome;

/// Maximum duration of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A local TCP server that runs a closure for each connection, on its own thread.
struct Hostile {
    port: u16,
    is_over: Arc<AtomicBool>,
}

impl Hostile {
    fn start(answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (is_over, answer) = (Arc::new(AtomicBool::new(false)), Arc::new(answer));
        let over = is_over.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten().take_while(|_| !over.load(Ordering::Relaxed)) {
                let answer = answer.clone();
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
                    let mut stream = stream;
                    while let Some(asked) = Asked::read(&mut reader) {
                        answer(&asked, &mut stream);
                    }
                });
            }
        });
        Self { port, is_over }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

/// An HTTP request.
struct Asked {
    is_get: bool,
    body: Value,
}

impl Asked {
    fn read(reader: &mut BufReader<TcpStream>) -> Option<Self> {
        let (mut first, mut length) = (String::new(), 0);
        reader.read_line(&mut first).ok().filter(|count| *count > 0)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
            match line.trim().to_ascii_lowercase().split_once(':') {
                None => break,
                Some(("content-length", value)) => length = value.trim().parse().ok()?,
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        Some(Self { is_get: first.starts_with("GET"), body: serde_json::from_slice(&body).unwrap_or_default() })
    }

    fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    fn answer(&self, stream: &mut TcpStream, result: &Value) {
        let body = json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}).to_string();
        send(stream, "200 OK", "content-type: application/json\r\n", &body);
    }
}

fn send(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    // In some tests, the client has already disconnected.
    let _ = write!(stream, "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
}

fn handshake(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "bad", "version": "1"}})
}

/// Peak resource usage of a process.
#[derive(Debug, Default)]
struct Peak {
    megabytes: usize,
    descriptors: usize,
    /// In hundredths of a second.
    cpu: usize,
}

impl Peak {
    fn look(&mut self, id: u32) {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let peak =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        self.megabytes = self.megabytes.max(peak.unwrap_or(0) / 1024);
        let open = std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count);
        self.descriptors = self.descriptors.max(open);
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        self.cpu = self.cpu.max(fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<usize>().ok()).sum());
    }
}

/// Creates a place with a hostile server behind a URL and the demo server.
fn beside_a_good_one(bad: &Hostile, transport: &str, path: &str) -> TempHome {
    let url = format!("http://127.0.0.1:{}{path}", bad.port);
    TempHome::with(&[
        json!({"alias": "bad", "url": url, "transport": transport}),
        json!({"alias": "good", "command": env!("CARGO_BIN_EXE_ropeway"), "args": ["demo-server"]}),
    ])
}

#[test]
fn a_list_of_a_thousand_pages_of_a_megabyte_stops_at_its_budget() {
    let page = Arc::new(AtomicUsize::new(0));
    let words = "x".repeat(1 << 20);
    let bad = Hostile::start(move |asked, stream| match asked.method() {
        "initialize" => asked.answer(stream, &handshake("2025-06-18")),
        "tools/list" => {
            let number = page.fetch_add(1, Ordering::Relaxed);
            let tool = json!({"name": format!("t{number}"), "description": words, "inputSchema": {"type": "object"}});
            let next = if number < 1000 { json!(number.to_string()) } else { Value::Null };
            asked.answer(stream, &json!({"tools": [tool], "nextCursor": next}));
        }
        _ if asked.body["id"].is_null() => send(stream, "202 Accepted", "", ""),
        _ => send(stream, "405 Method Not Allowed", "", ""),
    });
    let temp_home = beside_a_good_one(&bad, "streamable-http", "/mcp");
    let out = std::fs::File::create(temp_home.path().join("out")).expect("a file");
    let mut command = temp_home.ropeway(&["tools", "--json"]);
    let mut child = command.command.stdout(out).stderr(std::process::Stdio::null()).spawn().expect("ropeway starts");
    let (mut peak, began) = (Peak::default(), Instant::now());
    let status = loop {
        peak.look(child.id());
        if let Some(status) = child.try_wait().expect("a status") {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "{peak:?}");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success());
    // The list itself takes 32 MB; previously, all thousand pages were kept.
    assert!(peak.megabytes < 400, "{peak:?}");
    let listed: Value =
        serde_json::from_slice(&std::fs::read(temp_home.path().join("out")).expect("a file")).expect("JSON");
    let statuses: Vec<&Value> = listed["servers"].as_array().expect("servers").iter().collect();
    let note = statuses[0]["note"].as_str().unwrap_or_default();
    assert!(note.starts_with("truncated the tool list: it has reached the limit"), "{note}");
    assert_eq!(statuses[1]["status"]["tools"], 6);
}

#[test]
fn pings_whose_answers_are_never_read_take_few_descriptors() {
    let said = Arc::new(std::sync::Mutex::new(Vec::<String>::new()));
    let bad = Hostile::start(move |asked, stream| {
        if asked.is_get {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
            let _ = write!(stream, "event: endpoint\ndata: /post\n\n");
            let mut id = 0;
            loop {
                let mut events: String = std::mem::take(&mut *said.lock().expect("a queue"))
                    .iter()
                    .map(|answer| format!("event: message\ndata: {answer}\n\n"))
                    .collect();
                for _ in 0..20 {
                    id += 1;
                    let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
                    events.push_str(&format!("event: message\ndata: {ping}\n\n"));
                }
                if stream.write_all(events.as_bytes()).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let result = match asked.method() {
            "initialize" => handshake("2024-11-05"),
            "tools/list" => json!({"tools": []}),
            // Accepts the reply and never responds to the POST.
            "" => return std::thread::sleep(PATIENCE),
            _ => json!({}),
        };
        send(stream, "202 Accepted", "", "");
        if !asked.body["id"].is_null() {
            let answer = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": result}).to_string();
            said.lock().expect("a queue").push(answer);
        }
    });
    let temp_home = beside_a_good_one(&bad, "sse", "/sse");
    let mut running = temp_home.ropeway(&["events"]).start();
    let (mut peak, began) = (Peak::default(), Instant::now());
    while began.elapsed() < Duration::from_secs(4) {
        peak.look(running.child.id());
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = rustix::process::Pid::from_child(&running.child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("a process");
    running.child.wait().expect("an end");
    let mut shown = String::new();
    running.child.stdout.take().expect("output").read_to_string(&mut shown).expect("text");
    for server in ["bad", "good"] {
        assert!(shown.lines().any(|line| line.contains(server) && line.contains("ready")), "{shown}");
    }
    assert!(peak.descriptors < 100 && peak.megabytes < 200, "{peak:?}");
}

#[test]
fn a_gateway_that_is_its_own_server_is_not_started_without_end() {
    let temp_home = TempHome::new();
    let (program, starts) = (env!("CARGO_BIN_EXE_ropeway"), temp_home.path().join("starts"));
    let start = format!("echo >> {}; exec {program} serve --stdio --trust", starts.display());
    temp_home.configure(&[json!({"alias": "own", "command": "sh", "args": ["-c", start]})]);
    temp_home.run("tools").expect(0);
    let starts = std::fs::read_to_string(starts).expect("a file").lines().count();
    assert!((1..=4).contains(&starts), "{starts}");
}

#[test]
fn servers_that_are_nested_too_deeply_are_not_started() {
    let temp_home =
        TempHome::with(&[json!({"alias": "s", "command": env!("CARGO_BIN_EXE_ropeway"), "args": ["demo-server"]})]);
    let nested = |marks: &str| {
        let ropeway = temp_home.ropeway(&["call", "s.time"]);
        ropeway.with(|command| {
            command.env("ROPEWAY_SERVER_ID", marks);
        })
    };
    nested("a.1 b.1 c.1").run().expect(0);
    let refused = nested("a.1 b.1 c.1 d.1").run().expect(3).stderr;
    assert!(refused.contains("servers are nested 4 levels deep; one of them may start itself"), "{refused}");
}
