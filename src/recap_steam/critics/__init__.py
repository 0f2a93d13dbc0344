"""Critics: networks that read images and a task text and predict how an episode goes on."""
