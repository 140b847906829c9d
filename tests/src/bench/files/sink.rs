//! A server that writes every request's body to one file and answers every GET with it: no form, no hash, no database.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufWriter};
use tokio::net::UnixListener;

use crate::stack::Fallible;

/// Bytes written and read at once.
const PIECE_BYTES: usize = 1 << 20;

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Serves on a socket as long as the runtime runs.
pub(super) fn serve(socket: &Path, file: PathBuf) -> Fallible<()> {
    let listener = UnixListener::bind(socket)?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let file = file.clone();
            let service = hyper::service::service_fn(move |request| answer(request, file.clone()));
            tokio::spawn(async move {
                let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                drop(served.await);
            });
        }
    });
    Ok(())
}

async fn answer(request: Request<Incoming>, file: PathBuf) -> Result<Response<Body>, Infallible> {
    let answered = if request.method() == Method::GET { read(&file).await } else { write(request, &file).await };
    Ok(answered.unwrap_or_else(|error| {
        let mut response = Response::new(whole(error.to_string().into()));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    }))
}

async fn write(request: Request<Incoming>, file: &Path) -> Fallible<Response<Body>> {
    let mut out = BufWriter::with_capacity(PIECE_BYTES, File::create(file).await?);
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            out.write_all(&data).await?;
        }
    }
    out.flush().await?;
    Ok(Response::new(whole(Bytes::from_static(b"{}"))))
}

async fn read(file: &Path) -> Fallible<Response<Body>> {
    let file = File::open(file).await?;
    let length = file.metadata().await?.len();
    let pieces = stream::try_unfold(file, async |mut file| {
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        let read = file.read_buf(&mut piece).await?;
        Ok((read > 0).then(|| (Frame::data(piece.freeze()), file)))
    });
    let body = StreamBody::new(pieces).boxed_unsync();
    Ok(Response::builder().header("content-length", length).body(body)?)
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
