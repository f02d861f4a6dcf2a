//! A browser for the pages of oidc-provider: it follows redirects, keeps cookies, and submits forms.

use std::collections::BTreeMap;

use reqwest::Url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Maximum number of pages and redirects of a sign-in.
const MAX_STEPS: usize = 20;

/// A person with a browser. The cookies are kept, so a second sign-in needs no password.
#[derive(Default)]
pub(crate) struct Browser {
    /// Values by name and path.
    cookies: BTreeMap<(String, String), String>,
    /// The headings of the pages with a form that were seen.
    pub(crate) pages: Vec<String>,
    /// Whether the person declines.
    declines: bool,
}

/// A response of the authorization server.
struct Page {
    status: u16,
    location: Option<String>,
    body: String,
}

impl Browser {
    /// Returns the browser of a person that declines every request for access.
    pub(crate) fn declining() -> Self {
        Self { declines: true, ..Self::default() }
    }

    /// Opens a URL, answers all forms, and returns the redirect to another origin, or the body of the last page.
    pub(crate) async fn open(&mut self, url: &str) -> String {
        let mut url = Url::parse(url).expect("a URL");
        let origin = url.origin();
        let mut form = None;
        for _ in 0..MAX_STEPS {
            let page = self.load(&url, form.take()).await;
            if let Some(location) = &page.location {
                let next = url.join(location).expect("a URL");
                if next.origin() != origin {
                    return next.into();
                }
                url = next;
                continue;
            }
            assert!(page.status < 400, "{url}: {}", page.body);
            let Some((action, fields)) = read_form(&page.body) else { return page.body };
            self.pages.extend(between(&page.body, "<h1>", "</h1>").map(str::to_owned));
            if self.declines && action.contains("/interaction/") {
                url.set_path(&format!("{}/abort", url.path()));
                continue;
            }
            url = url.join(&action).expect("a URL");
            form = Some(fields);
        }
        panic!("no end after {MAX_STEPS} pages: {:?}", self.pages);
    }

    async fn load(&mut self, url: &Url, form: Option<String>) -> Page {
        let address = url.socket_addrs(|| None).expect("an address")[0];
        let target = url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let cookies = self.cookies.iter().filter(|((_, path), _)| url.path().starts_with(path));
        let cookies: Vec<String> = cookies.map(|((name, _), value)| format!("{name}={value}")).collect();
        let (method, body) = if let Some(body) = &form { ("POST", body.as_str()) } else { ("GET", "") };
        // With HTTP/1.0, the body ends with the connection.
        let request = format!(
            "{method} {target} HTTP/1.0\r\nHost: {address}\r\nCookie: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            cookies.join("; "),
            body.len()
        );
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("a response");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut page = Page { status, location: None, body: body.to_owned() };
        for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
            match name.to_ascii_lowercase().as_str() {
                "location" => page.location = Some(value.to_owned()),
                "set-cookie" => self.keep(value),
                _ => {}
            }
        }
        page
    }

    fn keep(&mut self, cookie: &str) {
        let (pair, attributes) = cookie.split_once(';').unwrap_or((cookie, ""));
        let (name, value) = pair.split_once('=').expect("a cookie");
        let path = attributes.split(';').find_map(|attribute| attribute.trim().strip_prefix("path="));
        let key = (name.to_owned(), path.unwrap_or("/").to_owned());
        if value.is_empty() {
            self.cookies.remove(&key);
        } else {
            self.cookies.insert(key, value.to_owned());
        }
    }
}

/// Returns the action and the filled-in fields of the form of a page.
fn read_form(page: &str) -> Option<(String, String)> {
    let form = between(page, "<form", "</form>")?;
    let action = attribute(form, "action")?;
    let mut fields = Url::parse("form:").expect("a URL");
    for input in form.split("<input").skip(1) {
        let input = input.split('>').next().unwrap_or_default();
        let Some(name) = attribute(input, "name") else { continue };
        let value = attribute(input, "value").unwrap_or_else(|| "ada".to_owned());
        fields.query_pairs_mut().append_pair(&name, &value);
    }
    Some((action, fields.query().unwrap_or_default().to_owned()))
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    between(tag, &format!("{name}=\""), "\"").map(|value| value.replace("&amp;", "&"))
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    rest.split_once(end).map(|(inner, _)| inner)
}
