//! The same call over HTTP/2, which carries request trailers as far as the filter.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::{Answer, Call, CallBody, SentBody, header_pairs, timed};

impl Call {
    /// Sends the request over a connection of its own, its body followed by these trailers, and reads the whole answer.
    pub async fn send_http2(self, address: SocketAddr, trailers: &[(&str, &str)]) -> io::Result<Answer> {
        let socket = TcpStream::connect(address).await?;
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket));
        let (mut sender, connection) = handshake.await.map_err(io::Error::other)?;
        let driver = tokio::spawn(async move { drop(connection.await) });
        let request = self.http2_request(address, trailers)?;
        let response = timed(sender.send_request(request)).await?.map_err(io::Error::other)?;
        let (head, body) = response.into_parts();
        let body = timed(body.collect()).await?.map_err(io::Error::other)?.to_bytes();
        driver.abort();
        Ok(Answer { status: head.status.as_u16(), headers: header_pairs(&head.headers), body })
    }

    fn http2_request(self, address: SocketAddr, trailers: &[(&str, &str)]) -> io::Result<Request<SentBody>> {
        let mut builder = Request::builder().method(self.method).uri(format!("http://{address}{}", self.path));
        for (name, value) in self.headers {
            builder = builder.header(name, value);
        }
        let chunks = match self.body {
            CallBody::Whole(bytes) => vec![bytes],
            CallBody::Chunks(chunks) => chunks,
        };
        let mut frames: Vec<Frame<Bytes>> = chunks.into_iter().map(Frame::data).collect();
        if !trailers.is_empty() {
            frames.push(Frame::trailers(map(trailers)?));
        }
        let body = StreamBody::new(stream::iter(frames.into_iter().map(Ok))).boxed_unsync();
        builder.body(body).map_err(io::Error::other)
    }
}

fn map(pairs: &[(&str, &str)]) -> io::Result<HeaderMap> {
    let pair = |(name, value): &(&str, &str)| -> io::Result<(HeaderName, HeaderValue)> {
        Ok((name.parse().map_err(io::Error::other)?, value.parse().map_err(io::Error::other)?))
    };
    pairs.iter().map(pair).collect()
}
