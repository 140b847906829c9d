//! A provider's base URL, taken apart once.
//!
//! INVARIANT: `path` is empty or starts with `/` and does not end with one.

use std::net::IpAddr;

/// Scheme, host, port and path of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// Over TLS.
    pub tls: bool,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    /// The scheme's own unless it says another.
    pub port: u16,
    /// In front of every request's path.
    pub path: String,
    /// What the `host` header says: the port is left out where the scheme implies it.
    pub authority: String,
}

impl BaseUrl {
    /// `None` for anything but `http[s]://host[:port][/path]`: no credentials, no query.
    pub fn parse(url: &str) -> Option<Self> {
        let uri: http::Uri = url.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?;
        if authority.as_str().contains('@') || uri.query().is_some() || uri.host()?.is_empty() {
            return None;
        }
        let implied = if tls { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(implied);
        let host = uri.host()?;
        Some(Self {
            tls,
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            path: uri.path().trim_end_matches('/').to_owned(),
            authority: if port == implied { host.to_owned() } else { format!("{host}:{port}") },
        })
    }

    /// The host as an address, if it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> Option<(bool, String, u16, String, String)> {
        BaseUrl::parse(url).map(|url| (url.tls, url.host, url.port, url.path, url.authority))
    }

    #[test]
    fn takes_urls_apart() {
        let owned = |tls, host: &str, port, path: &str, authority: &str| {
            Some((tls, host.to_owned(), port, path.to_owned(), authority.to_owned()))
        };
        assert_eq!(parts("https://api.openai.com"), owned(true, "api.openai.com", 443, "", "api.openai.com"));
        assert_eq!(parts("https://host:443/v1/"), owned(true, "host", 443, "/v1", "host"));
        assert_eq!(parts("http://127.0.0.1:11434"), owned(false, "127.0.0.1", 11434, "", "127.0.0.1:11434"));
        assert_eq!(parts("http://[::1]:80/a/b"), owned(false, "::1", 80, "/a/b", "[::1]"));
    }

    #[test]
    fn refuses_what_is_no_base_url() {
        for url in ["", "host", "ftp://host", "http://", "https://user:pass@host", "https://host/?q=1", "/v1"] {
            assert_eq!(parts(url), None, "{url}");
        }
    }
}
