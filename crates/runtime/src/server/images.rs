//! The image service.

use ferry_cri::v1;
use ferry_cri::v1::image_service_server::ImageService;
use tonic::{Request, Response};

use super::{Answer, Services, answer};
use crate::engine::{Failure, now};

#[tonic::async_trait]
impl ImageService for Services {
    async fn list_images(&self, request: Request<v1::ListImagesRequest>) -> Answer<v1::ListImagesResponse> {
        let images = &self.engine.images;
        let wanted = request.into_inner().filter.and_then(|filter| filter.image).map(|spec| spec.image);
        let found = match wanted.filter(|name| !name.is_empty()) {
            Some(name) => images.find(&name).into_iter().collect(),
            None => images.all(),
        };
        Ok(Response::new(v1::ListImagesResponse { images: found.iter().map(|image| images.show(image)).collect() }))
    }

    async fn image_status(&self, request: Request<v1::ImageStatusRequest>) -> Answer<v1::ImageStatusResponse> {
        let request = request.into_inner();
        let name = request.image.unwrap_or_default().image;
        let images = &self.engine.images;
        let found = images.find(&name);
        let mut info = std::collections::HashMap::new();
        if let Some(image) = found.as_ref().filter(|_| request.verbose) {
            let spec = serde_json::json!({"imageSpec": {"config": image.config}});
            info.insert("info".to_owned(), spec.to_string());
        }
        Ok(Response::new(v1::ImageStatusResponse { image: found.map(|image| images.show(&image)), info }))
    }

    async fn pull_image(&self, request: Request<v1::PullImageRequest>) -> Answer<v1::PullImageResponse> {
        let is_archive = request.metadata().contains_key(ferry_cri::ARCHIVE);
        let request = request.into_inner();
        let name = request.image.unwrap_or_default().image;
        if is_archive {
            let loaded = self.engine.images.import(std::path::Path::new(&name)).await;
            let loaded = loaded.map(|names| v1::PullImageResponse { image_ref: names.join(", ") });
            return answer(loaded.map_err(Failure::from));
        }
        let pulled = self.engine.images.pull(&name, request.auth.as_ref()).await;
        let pulled = pulled.map(|image_ref| v1::PullImageResponse { image_ref });
        pulled.map(Response::new).map_err(|error| {
            let status = tonic::Status::from(Failure::from(error));
            let message = format!("failed to pull and unpack image {name:?}: {}", status.message());
            tonic::Status::new(status.code(), message)
        })
    }

    async fn remove_image(&self, request: Request<v1::RemoveImageRequest>) -> Answer<v1::RemoveImageResponse> {
        let name = request.into_inner().image.unwrap_or_default().image;
        let engine = self.engine.clone();
        let removed = tokio::task::spawn_blocking(move || {
            let used = {
                let state = engine.state.lock();
                state.containers.values().flat_map(|c| c.record.layers.iter().cloned()).collect()
            };
            engine.images.remove(&name, &used)
        });
        let removed =
            removed.await.map_err(|e| Failure::Internal(e.to_string())).and_then(|r| r.map_err(Failure::from));
        answer(removed.map(|()| v1::RemoveImageResponse {}))
    }

    async fn image_fs_info(&self, _: Request<v1::ImageFsInfoRequest>) -> Answer<v1::ImageFsInfoResponse> {
        let (bytes, files) = self.engine.images.usage();
        let usage = v1::FilesystemUsage {
            timestamp: now(),
            fs_id: Some(v1::FilesystemIdentifier {
                mountpoint: self.engine.images.root().to_string_lossy().into_owned(),
            }),
            used_bytes: Some(v1::UInt64Value { value: bytes }),
            inodes_used: Some(v1::UInt64Value { value: files }),
        };
        let response =
            v1::ImageFsInfoResponse { image_filesystems: vec![usage.clone()], container_filesystems: vec![usage] };
        Ok(Response::new(response))
    }
}
