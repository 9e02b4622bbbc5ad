"""Pictures of meshes, layouts and plans."""
