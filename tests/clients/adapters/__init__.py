"""Each library as a `Client`, in its own words. Importing a module here needs its library."""
