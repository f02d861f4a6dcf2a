//! The callback listener's response pages. They are constant: they repeat nothing from a request.

/// A response from the callback listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The callback with a code.
    Received,
    /// The callback with an error.
    Refused,
    /// A callback after the first one.
    AlreadyReceived,
    WrongState,
    WrongHost,
    WrongMethod,
    NotFound,
    BadRequest,
    TooLarge,
}

/// The same design as the gateway page. The styles are inline, because a page loads nothing.
const STYLE: &str = "\
:root { color-scheme: light dark; font: 14px/1.5 system-ui, -apple-system, \"Segoe UI\", Roboto, \"Noto Sans\", sans-serif; \
background: light-dark(#f7f7f5, #16181b); color: light-dark(#1b1d20, #e6e7e9); }
body { margin: 0; min-height: 100dvh; display: grid; place-content: center; padding: 16px; box-sizing: border-box; }
main { max-width: 440px; padding: 24px 28px; border: 1px solid light-dark(#e1e3e0, #33383f); border-radius: 10px; \
background: light-dark(#ffffff, #1d2024); }
.brand { display: flex; align-items: center; gap: 8px; margin: 0 0 16px; font-weight: 650; color: inherit; }
h1 { margin: 0 0 6px; font-size: 20px; letter-spacing: -.01em; }
.good { color: light-dark(#17703a, #5fce8a); }
.bad { color: light-dark(#b42318, #ff9086); }
p { margin: 0; color: light-dark(#5a6068, #a3a9b2); }";

/// The same icon as the gateway page.
const ICON: &str = "\
<svg width=\"22\" height=\"22\" viewBox=\"0 0 32 32\" aria-hidden=\"true\"><rect width=\"32\" height=\"32\" rx=\"7\" fill=\"#175cd3\"/>\
<path d=\"M4 12 28 6M16 9v6\" stroke=\"#fff\" stroke-width=\"2.2\" stroke-linecap=\"round\"/>\
<rect x=\"8.5\" y=\"14\" width=\"15\" height=\"11\" rx=\"3\" fill=\"#fff\"/>\
<path d=\"M16 14v6M8.5 20h15\" stroke=\"#175cd3\" stroke-width=\"1.6\"/></svg>";

/// Headers for every page. A page loads nothing, is not framed or stored, and keeps its URL to itself.
const HEADERS: &str = "\
Content-Type: text/html; charset=utf-8\r\n\
Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
X-Content-Type-Options: nosniff\r\n\
Referrer-Policy: no-referrer\r\n\
Cross-Origin-Resource-Policy: same-origin\r\n\
Cache-Control: no-store\r\n\
Connection: close\r\n";

impl Page {
    /// Returns the status line, the title and the text.
    const fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Received => ("200 OK", "Sign-in received", "Return to the terminal. You can close this page."),
            Self::Refused => ("200 OK", "Sign-in refused", "The terminal shows the reason. You can close this page."),
            Self::AlreadyReceived => {
                ("200 OK", "Sign-in already received", "Return to the terminal. You can close this page.")
            }
            Self::WrongState => (
                "400 Bad Request",
                "Not the expected sign-in",
                "This page belongs to another sign-in. Open the URL that the terminal shows.",
            ),
            Self::WrongHost => ("403 Forbidden", "Wrong host", "This address only receives Ropeway sign-ins."),
            Self::WrongMethod => ("405 Method Not Allowed", "Method not allowed", "Only GET is allowed."),
            Self::NotFound => ("404 Not Found", "Not found", "This address only receives Ropeway sign-ins."),
            Self::BadRequest => ("400 Bad Request", "Bad request", "The request is not valid HTTP/1.1."),
            Self::TooLarge => ("431 Request Header Fields Too Large", "Too large", "The request is too large."),
        }
    }

    /// Returns the whole response.
    pub(super) fn response(self) -> String {
        let (status, title, text) = self.parts();
        let outcome = match self {
            Self::Received | Self::AlreadyReceived => "good",
            _ => "bad",
        };
        let body = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title} · Ropeway</title>\n<style>\n{STYLE}\n</style>\n\
             <main>\n<p class=\"brand\">{ICON} Ropeway</p>\n<h1 class=\"{outcome}\">{title}</h1>\n<p>{text}</p>\n</main>\n</html>\n"
        );
        let allow = if self == Self::WrongMethod { "Allow: GET\r\n" } else { "" };
        format!("HTTP/1.1 {status}\r\n{HEADERS}{allow}Content-Length: {}\r\n\r\n{body}", body.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_complete_and_loads_nothing() {
        let response = Page::Received.response();
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("default-src 'none'") && head.contains("no-referrer") && head.contains("no-store"));
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
        for loading in ["script", "src=", "href=", "url(", "@import"] {
            assert!(!body.contains(loading), "{loading}: {body}");
        }
        assert!(body.contains("<h1 class=\"good\">") && Page::Refused.response().contains("<h1 class=\"bad\">"));
        assert!(Page::WrongMethod.response().contains("\r\nAllow: GET\r\n"));
    }
}
