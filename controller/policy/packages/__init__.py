"""Programs of package registries: command lines such as `npx foo@1.2.3`, and their install into an image. Pure."""
