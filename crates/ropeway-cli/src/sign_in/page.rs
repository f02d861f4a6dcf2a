//! The pages that the callback listener answers. They are constant: nothing of a request is repeated in them.

/// A response of the callback listener.
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

/// Headers of every page. A page loads nothing, is not framed or stored, and keeps its URL to itself.
const HEADERS: &str = "\
Content-Type: text/html; charset=utf-8\r\n\
Content-Security-Policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
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
        let body = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title} · Ropeway</title>\n<h1>{title}</h1>\n<p>{text}</p>\n</html>\n"
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
        assert!(!body.contains("script") && !body.contains("src=") && !body.contains("href="), "{body}");
        assert!(Page::WrongMethod.response().contains("\r\nAllow: GET\r\n"));
    }
}
