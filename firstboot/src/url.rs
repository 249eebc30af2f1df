//! Owns: https URLs: their origin, the pool they name, the token they may carry, and how one is shown.
//! Given text, gives a `Url`; given a `Location`, gives where it leads.
//! Never: shows a query, which may be a secret; accepts a user name or password before the host.

use crate::secret::Secret;
use std::fmt;
use ureq::http::Uri;

/// Why a URL cannot be used. Its text is not repeated: it may hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// Not a URL with a host.
    #[error("not a URL with a host")]
    Malformed,
    /// Another scheme, or none.
    #[error("not an https URL")]
    NotHttps,
    /// `user:password@host`.
    #[error("a URL with a user name or password before its host")]
    UserInfo,
}

/// Scheme https, host in lower case, port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Name or address; an IPv6 address is in brackets.
    pub host: String,
    /// 443 unless the URL says otherwise.
    pub port: u16,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// An https URL.
#[derive(Clone)]
pub struct Url {
    origin: Origin,
    path: String,
    query: Option<Secret<String>>,
}

/// As shown to people and in the report: without the query.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}{}", self.origin, self.path)
    }
}

impl Url {
    /// An absolute https URL. A fragment is dropped, as it is never sent.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        let text = text.split('#').next().unwrap_or(text);
        if !text.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
            return Err(BadUrl::NotHttps);
        }
        let uri: Uri = text.parse().map_err(|_| BadUrl::Malformed)?;
        let authority = uri.authority().ok_or(BadUrl::Malformed)?;
        if authority.as_str().contains('@') {
            return Err(BadUrl::UserInfo);
        }
        let host = authority.host().to_ascii_lowercase();
        if host.is_empty() || (authority.as_str().len() > host.len() && authority.port_u16().is_none()) {
            return Err(BadUrl::Malformed);
        }
        Ok(Self {
            origin: Origin { host, port: authority.port_u16().unwrap_or(443) },
            path: uri.path().to_owned(),
            query: uri.query().map(|query| Secret::new(query.to_owned())),
        })
    }

    /// Whom a token for this URL may be sent to.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// `worker` of `/config/worker`: what makes a reference one of the Machine Config Server's.
    pub fn pool(&self) -> Option<&str> {
        let pool = self.path.strip_prefix("/config/")?;
        (!pool.is_empty() && !pool.contains('/')).then_some(pool)
    }

    /// The value of `token=` in the query, which no longer has it afterwards.
    pub fn take_token(&mut self) -> Option<Secret<String>> {
        let query = self.query.take()?;
        let (tokens, rest): (Vec<&str>, Vec<&str>) =
            query.expose().split('&').partition(|pair| pair.starts_with("token="));
        self.query = (!rest.is_empty()).then(|| Secret::new(rest.join("&")));
        // A `+` stays one: base64 has it, and whoever meant a space would not be writing a token.
        let token = percent_encoding::percent_decode_str(tokens.first()?.strip_prefix("token=")?);
        Some(Secret::new(token.decode_utf8_lossy().into_owned()))
    }

    /// The whole URL, for the request line only.
    pub fn request(&self) -> Secret<String> {
        let query = self.query.as_ref().map(|query| format!("?{}", query.expose())).unwrap_or_default();
        Secret::new(format!("{self}{query}"))
    }

    /// Where a `Location` header leads from here. Only https is understood, and only what servers send.
    pub fn join(&self, location: &str) -> Result<Self, BadUrl> {
        if location.contains("://") && !location.starts_with('/') {
            return Self::parse(location);
        }
        if let Some(network_path) = location.strip_prefix("//") {
            return Self::parse(&format!("https://{network_path}"));
        }
        if location.starts_with('/') {
            return Self::parse(&format!("https://{}{location}", self.origin));
        }
        let folder = self.path.rfind('/').map_or("/", |at| &self.path[..=at]);
        Self::parse(&format!("https://{}{folder}{location}", self.origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn only_config_and_one_segment_is_a_pool() {
        for (text, pool) in [
            ("https://h:22623/config/worker", Some("worker")),
            ("HTTPS://H/config/worker?x=1#y", Some("worker")),
            ("https://h/config/", None),
            ("https://h/config/a/b", None),
            ("https://h/ignition", None),
            ("https://h/x/config/worker", None),
        ] {
            assert_eq!(url(text).pool(), pool, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_plain_https_url_is_refused() {
        for (text, error) in [
            ("http://h/config/worker", BadUrl::NotHttps),
            ("/config/worker", BadUrl::NotHttps),
            ("https://", BadUrl::Malformed),
            ("https://h:99999/", BadUrl::Malformed),
            ("https://u:p@h/", BadUrl::UserInfo),
        ] {
            assert_eq!(Url::parse(text).err(), Some(error), "{text}");
        }
    }

    #[test]
    fn origins_compare_without_case_and_with_the_default_port() {
        assert_eq!(url("https://Api.X/").origin(), url("https://api.x:443/a").origin());
        assert_ne!(url("https://api.x/").origin(), url("https://api.x:444/").origin());
        assert_eq!(url("https://[::1]:22623/").origin().to_string(), "[::1]:22623");
    }

    #[test]
    fn the_token_leaves_the_url_and_the_rest_stays() {
        let mut with = url("https://h/config/worker?a=1&token=x%2By%3D&b=2");
        assert_eq!(with.take_token().unwrap().expose(), "x+y=");
        assert_eq!(with.request().expose(), "https://h:443/config/worker?a=1&b=2");
        assert!(with.take_token().is_none());
        assert_eq!(with.request().expose(), "https://h:443/config/worker?a=1&b=2");
    }

    #[test]
    fn a_query_is_never_shown() {
        assert_eq!(url("https://h/config/worker?token=s").to_string(), "https://h:443/config/worker");
    }

    #[test]
    fn locations_lead_where_a_browser_would_go() {
        let from = url("https://h:1/config/worker?token=s");
        for (location, to) in [
            ("https://other/x", "https://other:443/x"),
            ("//other:2/x", "https://other:2/x"),
            ("/y", "https://h:1/y"),
            ("z", "https://h:1/config/z"),
        ] {
            assert_eq!(from.join(location).unwrap().to_string(), to, "{location}");
        }
        assert_eq!(from.join("http://h:1/y").err(), Some(BadUrl::NotHttps));
    }
}
